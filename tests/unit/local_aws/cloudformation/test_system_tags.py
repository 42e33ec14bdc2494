"""The tags that CloudFormation itself writes on resources."""

from __future__ import annotations

from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from local_aws.cloudformation.resources import aws_types


def test_only_types_whose_schema_has_system_tags_get_them() -> None:
    """Only types with system tags on AWS get `aws:cloudformation:stack-name`, so endpoints do not."""
    wrong = []
    for one in aws_types():
        if "Tags" in one.known:
            tagging = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", one.type).schema["tagging"]
            if one.takes_system_tags and not tagging["cloudFormationSystemTags"]:
                wrong.append(one.type)
    assert wrong == []
