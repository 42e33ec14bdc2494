"""Models' weights in S3: fetch a pinned revision, check it, upload it once, and remove it when nothing uses it."""
