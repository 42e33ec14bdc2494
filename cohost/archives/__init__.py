"""The archives published for an endpoint, their checks, and the store that CloudFormation drives.

This folder is also the code of the stack's Lambda function, so it uses only the standard library and boto3, and
imports nothing else of cohost.
"""
