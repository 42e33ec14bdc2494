"""CloudFormation: the query protocol of the cdk CLI and boto3 in front of a deployment engine."""
