"""Programs around the load test: a stub that answers it, and runs on the AWS of this machine."""
