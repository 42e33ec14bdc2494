"""The buckets, archives and weights of models in S3."""
