"""What is published for an endpoint: archives, their checks, and the store that CloudFormation drives.

This folder is also the code of the stack's Lambda function, so it rests on the standard library and boto3 alone
and imports nothing else of cohost.
"""
