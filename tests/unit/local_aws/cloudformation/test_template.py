"""Reading templates."""

from __future__ import annotations

import pytest
from fakes.faults import faulted

from local_aws.cloudformation.templates.template import parse_template

YAML = """
AWSTemplateFormatVersion: 2010-09-09
Resources:
  Bucket:
    Type: AWS::S3::Bucket
    DependsOn: Other
    DeletionPolicy: Retain
    Properties:
      A: !Ref Name
      B: !GetAtt Other.Arn.Part
      C: !Sub ["${x}-y", {x: !Ref Name}]
      D: !If [Big, !Join ["", [a, b]], !Ref "AWS::NoValue"]
      E: {Version: 2012-10-17}
  Other: {Type: "AWS::S3::Bucket"}
Conditions:
  Big: !Not [!Condition Small]
  Small: !Equals [a, b]
"""


def test_short_forms_become_long_ones() -> None:
    """`!Ref` and other short forms are read as their long forms, and dates stay text."""
    template = parse_template(YAML)
    properties = template.resources["Bucket"].properties
    assert properties["A"] == {"Ref": "Name"}
    assert properties["B"] == {"Fn::GetAtt": ["Other", "Arn.Part"]}
    assert properties["C"] == {"Fn::Sub": ["${x}-y", {"x": {"Ref": "Name"}}]}
    assert properties["D"] == {"Fn::If": ["Big", {"Fn::Join": ["", ["a", "b"]]}, {"Ref": "AWS::NoValue"}]}
    assert properties["E"] == {"Version": "2012-10-17"}
    assert template.document["AWSTemplateFormatVersion"] == "2010-09-09"
    assert template.resources["Bucket"].depends_on == ("Other",)
    assert template.resources["Bucket"].deletion_policy == "Retain"


def with_resource(extra: str) -> str:
    """Return a template of one bucket with additions to its entry."""
    return f'{{"Resources": {{"A": {{"Type": "AWS::S3::Bucket", {extra}}}}}}}'


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("{", "YAML not well-formed"),
        ("just text", "unsupported structure"),
        ("{}", "Resources"),
        ('{"Resources": {"A": {}}}', "/Resources/A"),
        ('{"Resources": {"A-b": {"Type": "T"}}}', "A-b"),
        ('{"Resource": {}, "Resources": {"A": {"Type": "T"}}}', "[Resource]"),
        (with_resource('"Propertys": {}'), "[Propertys] in [A]"),
        (with_resource('"DependsOn": ["B"]'), "[B]"),
        (with_resource('"Condition": "C"'), "[C]"),
        (with_resource('"DeletionPolicy": "Snapshot"'), "DeletionPolicy Snapshot of [A]"),
        (with_resource('"UpdatePolicy": {"x": 1}'), "UpdatePolicy"),
        ('{"Transform": "AWS::Serverless-2016-10-31", "Resources": {"A": {"Type": "T"}}}', "AWS::Serverless"),
    ],
)
def test_malformed_template_is_refused_by_name(body: str, about: str) -> None:
    """A malformed template is rejected with the place of the fault."""
    with faulted("ValidationError", 400, about):
        parse_template(body)
