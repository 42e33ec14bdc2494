"""The model archives of an endpoint, their checks, and the custom resource that publishes archives to S3.

This folder is also the code of the stack's Lambda function, so it uses only the standard library and boto3, and does
not import other parts of cohost.
"""
