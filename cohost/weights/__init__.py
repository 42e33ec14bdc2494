"""Models' weights in S3: fetched in a pinned revision, checked, uploaded once, and removed when nothing uses them."""
