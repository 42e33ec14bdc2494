"""CloudFormation: an engine that deploys stacks, behind the AWS query protocol that the cdk CLI and boto3 use."""
