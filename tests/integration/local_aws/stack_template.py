"""A stack like the project's: bucket, function, model store, model, endpoint config."""

from __future__ import annotations

import json
from typing import Any

# A store: it writes one object whose key is the content, and is replaced when the content changes.
HANDLER = """
import json, urllib.request, boto3

def handler(event, context):
    props = event["ResourceProperties"]
    answer = {k: event[k] for k in ("StackId", "RequestId", "LogicalResourceId")}
    old = event.get("PhysicalResourceId", "none")
    try:
        s3 = boto3.client("s3")
        if event["RequestType"] == "Delete":
            s3.delete_object(Bucket=props["Bucket"], Key=old)
            answer.update(Status="SUCCESS", PhysicalResourceId=old)
        else:
            if props["Content"] == "bad":
                raise ValueError("the content is bad")
            s3.put_object(Bucket=props["Bucket"], Key=props["Content"], Body=b"x")
            url = "s3://%s/%s/" % (props["Bucket"], props["Content"])
            answer.update(Status="SUCCESS", PhysicalResourceId=props["Content"], Data={"Url": url})
    except Exception as error:
        answer.update(Status="FAILED", Reason=str(error), PhysicalResourceId=old)
    print("answering", answer["Status"])
    body = json.dumps(answer).encode()
    put = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(put)
"""


def policy(effect: str, action: str | list[str], **fields: Any) -> dict[str, Any]:
    """Return a policy of one statement."""
    return {"Version": "2012-10-17", "Statement": [{"Effect": effect, "Action": action, **fields}]}


def get_att(resource: str, attribute: str) -> dict[str, list[str]]:
    """A `Fn::GetAtt`."""
    return {"Fn::GetAtt": [resource, attribute]}


def resource(kind: str, *, depends_on: str | None = None, **properties: Any) -> dict[str, Any]:
    """An entry of a template."""
    entry: dict[str, Any] = {"Type": kind, "Properties": properties}
    return entry if depends_on is None else {**entry, "DependsOn": depends_on}


def storage() -> dict[str, Any]:
    """Return an encrypted, private bucket with its policy."""
    algorithm = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    objects = {"Fn::Sub": "${Bucket.Arn}/*"}
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    return {
        "Bucket": resource(
            "AWS::S3::Bucket",
            BucketEncryption={"ServerSideEncryptionConfiguration": [algorithm]},
            PublicAccessBlockConfiguration={"BlockPublicAcls": True, "BlockPublicPolicy": "true"},
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        ),
        "BucketPolicy": resource(
            "AWS::S3::BucketPolicy",
            Bucket={"Ref": "Bucket"},
            PolicyDocument=policy("Deny", "s3:*", Principal="*", Resource=objects, Condition=insecure),
        ),
    }


def store(content: str) -> dict[str, Any]:
    """Return the publishing function with role and log group, and its custom resource."""
    trust = policy("Allow", "sts:AssumeRole", Principal={"Service": "lambda.amazonaws.com"})
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    store = policy("Allow", objects, Resource={"Fn::Sub": "${Bucket.Arn}/*"})
    return {
        "Logs": resource("AWS::Logs::LogGroup", RetentionInDays=30),
        "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument=trust),
        "Policy": resource("AWS::IAM::Policy", PolicyName="p", PolicyDocument=store, Roles=[{"Ref": "Role"}]),
        "Function": resource(
            "AWS::Lambda::Function",
            depends_on="Policy",
            Code={"ZipFile": HANDLER},
            Handler="index.handler",
            Runtime="python3.13",
            Timeout=120,
            Role=get_att("Role", "Arn"),
            LoggingConfig={"LogGroup": {"Ref": "Logs"}},
        ),
        "Store": resource(
            "Custom::Store",
            depends_on="BucketPolicy",
            ServiceToken=get_att("Function", "Arn"),
            Bucket={"Ref": "Bucket"},
            Content=content,
        ),
    }


def serving(instance_type: str) -> dict[str, Any]:
    """Model, configuration and endpoint."""
    container = {"Image": "i", "Mode": "MultiModel", "ModelDataUrl": get_att("Store", "Url")}
    variant = {
        "VariantName": "All",
        "ModelName": get_att("Model", "ModelName"),
        "InstanceType": instance_type,
        "InitialInstanceCount": "1",
    }
    return {
        "Model": resource("AWS::SageMaker::Model", ExecutionRoleArn=get_att("Role", "Arn"), PrimaryContainer=container),
        "Config": resource("AWS::SageMaker::EndpointConfig", ProductionVariants=[variant]),
        "Endpoint": resource(
            "AWS::SageMaker::Endpoint",
            EndpointName="lmi",
            EndpointConfigName=get_att("Config", "EndpointConfigName"),
        ),
    }


def template(content: str, *, instance_type: str = "ml.g5.xlarge") -> str:
    """The whole template for this content of the store."""
    outputs = {"Url": {"Value": get_att("Store", "Url")}, "Bucket": {"Value": {"Ref": "Bucket"}}}
    return json.dumps({"Resources": {**storage(), **store(content), **serving(instance_type)}, "Outputs": outputs})


def only(name: str, kind: str, **properties: Any) -> str:
    """Return a template of one resource."""
    return json.dumps({"Resources": {name: resource(kind, **properties)}})
