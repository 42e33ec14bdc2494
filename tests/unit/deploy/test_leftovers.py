"""The names and stacks of SageMaker's resources, on answers of the form that the services give."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from cohost.deploy.cleanup.leftovers import stack_of
from cohost.deploy.cleanup.resource_types import name_in

ARN = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/lmi"


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov", "aws-eusc"])
def test_a_name_is_read_from_the_arn_of_every_partition(partition: str) -> None:
    """The name of a resource is read from its ARN in every partition."""
    assert name_in(ARN.replace("aws", partition, 1)) == "lmi"
    assert name_in(topic := f"arn:{partition}:sns:us-east-1:123456789012:alarms") == topic


@pytest.mark.parametrize("tag", ["lmi-cohost:stack", "aws:cloudformation:stack-name"])
def test_a_stack_is_found_on_a_later_page_of_tags(tag: str) -> None:
    """A resource's stack is found by the project's tag or CloudFormation's, even on a later page of tags."""
    client = boto3.client("sagemaker", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stub:
        stub.add_response("list_tags", {"Tags": [{"Key": "team", "Value": "search"}], "NextToken": "more"})
        stub.add_response("list_tags", {"Tags": [{"Key": tag, "Value": "LmiCohostStack"}]})
        assert stack_of(client, ARN) == "LmiCohostStack"
