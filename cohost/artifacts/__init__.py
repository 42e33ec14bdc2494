"""Archives and the model store: standard library and boto3 only, because this folder is the Lambda asset."""
