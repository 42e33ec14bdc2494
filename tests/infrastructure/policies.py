"""The rights of a template's roles: policies with resolved references, evaluated for single requests.

Statements are evaluated by the emulator's own `local_aws.rights.policies`. A policy of the bucket can deny but does
not have to allow, since all is in one account. An operator, a condition key, a function or a resource type that is not
known fails the test that meets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local_aws.rights import policies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ACCOUNT, REGION = "123456789012", "us-east-1"
PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "LmiCohostStack",
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/LmiCohostStack/1",
}
TLS: Mapping[str, str] = {"aws:SecureTransport": "true"}

# How Ref and Fn::GetAtt Arn of a type read; {name} is the physical name, which is the property's where it is given one.
_NAME_PROPERTY = {
    "AWS::S3::Bucket": "BucketName",
    "AWS::SageMaker::Endpoint": "EndpointName",
    "AWS::SageMaker::InferenceComponent": "InferenceComponentName",
    "AWS::Logs::LogGroup": "LogGroupName",
}
_ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::SageMaker::Endpoint": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:endpoint/{{name}}",
    "AWS::SageMaker::InferenceComponent": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:inference-component/{{name}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}:*",
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{name}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{name}}",
    "AWS::SNS::Topic": f"arn:aws:sns:{REGION}:{ACCOUNT}:{{name}}",
    "AWS::Scheduler::ScheduleGroup": f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/{{name}}",
}
_REF_IS_ARN = {"AWS::SageMaker::Endpoint", "AWS::SageMaker::InferenceComponent", "AWS::SNS::Topic"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request with the facts that IAM decides by."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)


class Policies:
    """The policies of a template."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self._resources = template["Resources"]

    def name(self, logical_id: str) -> str:
        """Return the physical name of a resource: the given name or the logical id, in lower case for a bucket."""
        resource = self._resources[logical_id]
        given = resource["Properties"].get(_NAME_PROPERTY.get(resource["Type"], ""))
        return str(self.resolve(given)) if given is not None else logical_id.lower()

    def arn(self, logical_id: str) -> str:
        """The ARN of a resource."""
        return _ARNS[self._resources[logical_id]["Type"]].format(name=self.name(logical_id))

    def resolve(self, value: Any) -> Any:
        """A value of the template without references."""
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, argument = next(iter(value.items()))
            if name == "Ref":
                return self._ref(argument)
            if name.startswith("Fn::"):
                return self._function(name, argument)
        return {key: self.resolve(item) for key, item in value.items()}

    def roles(self) -> dict[str, str]:
        """Return each role of the template, and the service that may assume the role."""
        return {
            logical_id: next(
                str(self.resolve(statement["Principal"]["Service"]))
                for statement in resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
            )
            for logical_id, resource in self._of_type("AWS::IAM::Role")
        }

    def statements(self, role: str) -> list[dict[str, Any]]:
        """Return every statement of a role's inline policies; the stack has no managed policies."""
        properties = self._resources[role]["Properties"]
        assert not {"ManagedPolicyArns", "PermissionsBoundary"} & properties.keys(), role
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
        documents += [
            policy["Properties"]["PolicyDocument"]
            for _, policy in self._of_type("AWS::IAM::Policy")
            if {"Ref": role} in policy["Properties"]["Roles"]
        ]
        return [self.resolve(statement) for document in documents for statement in document["Statement"]]

    def allows(self, role: str, request: Request) -> bool:
        """Return True if the role may make this request."""
        statements = [*self.statements(role), *self._bucket_statements(request)]
        assert not any({"NotAction", "NotResource", "NotPrincipal"} & one.keys() for one in statements), role
        context = {key.lower(): [value] for key, value in request.context.items()}
        asked = policies.Request(action=request.action, resource=request.resource, context=context)
        return policies.evaluate([{"Statement": statements}], asked) is policies.Verdict.ALLOWED

    def _of_type(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from ((name, found) for name, found in self._resources.items() if found["Type"] == kind)

    def _bucket_statements(self, request: Request) -> Iterator[dict[str, Any]]:
        for _, policy in self._of_type("AWS::S3::BucketPolicy"):
            bucket = self.resolve(policy["Properties"]["Bucket"])
            if request.resource.removeprefix("arn:aws:s3:::").partition("/")[0] == bucket:
                found = self.resolve(policy["Properties"]["PolicyDocument"]["Statement"])
                yield from (statement for statement in found if statement["Effect"] == "Deny")

    def _ref(self, name: str) -> str:
        if name in PSEUDO:
            return PSEUDO[name]
        return self.arn(name) if self._resources[name]["Type"] in _REF_IS_ARN else self.name(name)

    def _function(self, name: str, argument: Any) -> str:
        match name, argument:
            case "Fn::Join", [separator, parts]:
                return str(separator).join(map(str, self.resolve(parts)))
            case "Fn::GetAtt", [logical_id, "Arn" | "TopicArn"]:
                return self.arn(logical_id)
            case "Fn::GetAtt", [logical_id, attribute]:
                return f"{attribute}-of-{self.name(logical_id)}"
            case "Fn::Select", [index, {"Fn::Split": [separator, text]}]:
                return str(self.resolve(text)).split(separator)[int(index)]
        raise AssertionError(f"{name} of {argument}: teach the evaluator")
