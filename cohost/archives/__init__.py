"""The model archives of an endpoint, their checks, and the custom resource that publishes archives to S3.

The folder `cohost/archives` is also the code of the stack's Lambda function, so its modules use only the standard
library and boto3, and do not import other parts of cohost.
"""
