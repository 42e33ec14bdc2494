"""Weights in S3: the stack of their bucket, the rights on it, and the diff of a new revision."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from synthesis import FLAGS, make_catalog, make_stack, only, resources, statements, template_of

from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack, needs_weights_stack

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
OLD, NEW = "a" * 40, "b" * 40
BUCKET = {"Fn::Join": ["", ["lmi-cohost-weights-", {"Ref": "AWS::AccountId"}, "-us-east-1"]]}


def catalog(revision: str = OLD, *, storage: dict[str, Any] | None = None, **more: dict[str, Any]) -> Catalog:
    """Return a catalog of one pushed model and further settings."""
    pushed = {"model_id": "org/nli", "revision": revision, "task": "text-classification", "weights": "s3"}
    return make_catalog(storage=storage, models={"nli": pushed, **more})


def weights_template(made: Catalog) -> dict[str, Any]:
    """The template of the bucket's stack."""
    app = cdk.App(context=FLAGS, analytics_reporting=False)
    stack = LmiCohostWeightsStack(app, "Weights", catalog=made, env=cdk.Environment(region="us-east-1"))
    return template_of(stack)


def reads(template: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    """Return the rights of a resource's role outside the stack's own buckets, as (action, resource or prefix)."""
    role = next(name for name in resources(template, "AWS::IAM::Role") if kind in name)
    found = []
    for statement in statements(template, role):
        arns = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        for arn in arns:
            if "arn:aws:s3:::" in json.dumps(arn):
                where = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix") or _text(arn)
                found.append((str(statement["Action"]), where))
    return sorted(found)


def _text(arn: Any) -> str:
    """Return an ARN as text without its references."""
    return arn if isinstance(arn, str) else "".join(part for part in arn["Fn::Join"][1] if isinstance(part, str))


def test_container_may_read_the_weights_and_nothing_else_of_the_bucket() -> None:
    """The container may read and list only `weights/` of the bucket, and no manifests."""
    template = template_of(make_stack(catalog()))
    assert reads(template, "Endpoint") == [
        ("s3:GetObject", "arn:aws:s3:::lmi-cohost-weights--us-east-1/weights/*"),
        ("s3:ListBucket", "weights/*"),
    ]


def test_function_sees_what_is_whole_and_reads_no_weights() -> None:
    """The publishing function may list manifests, and has no right to read weights."""
    assert reads(template_of(make_stack(catalog())), "ModelStore") == [("s3:ListBucket", "manifests/*")]


def test_function_lets_s3_copy_what_goes_into_archives() -> None:
    """With `weights: archive` the function may also read `packed/` and abort a failed upload, and nothing else."""
    packed = {"model_id": "org/nli", "revision": OLD, "task": "text-classification", "weights": "archive"}
    template = template_of(make_stack(make_catalog(models={"nli": packed})))
    assert reads(template, "ModelStore") == [
        ("s3:GetObject", "arn:aws:s3:::lmi-cohost-weights--us-east-1/packed/*"),
        ("s3:ListBucket", "manifests/*"),
        ("s3:ListBucket", "packed/*"),
    ]
    role = next(name for name in resources(template, "AWS::IAM::Role") if "ModelStore" in name)
    actions = [action for found in statements(template, role) for action in _list(found["Action"])]
    assert actions.count("s3:AbortMultipartUpload") == 1
    plain = template_of(make_stack(catalog()))
    assert "s3:AbortMultipartUpload" not in json.dumps(plain["Resources"])


def _list(value: Any) -> list[Any]:
    """Return a single value or a list as a list."""
    return value if isinstance(value, list) else [value]


def test_addresses_of_the_users_own_may_be_read() -> None:
    """The role may read the address of `model_id: s3://…`, so no other setting is needed."""
    own = {"model_id": "s3://mine/models/own/", "task": "text-classification"}
    template = template_of(make_stack(make_catalog(models={"own": own})))
    assert reads(template, "Endpoint") == [
        ("s3:GetObject", "arn:aws:s3:::mine/models/own/*"),
        ("s3:ListBucket", "models/own/*"),
    ]
    assert "WeightsBucket" not in template["Outputs"]


def test_new_revision_shows_as_one_line_of_that_model() -> None:
    """`cdk diff` shows a new revision as one line with both addresses, because properties have no CDK tokens."""
    before, after = (only(template_of(make_stack(catalog(one))), "Custom::LmiModelStore")[1] for one in (OLD, NEW))
    models = [resource["Properties"].pop("Models") for resource in (before, after)]
    assert before == after
    assert models[0]["nli"].pop("option.model_id") == f"s3://{{WeightsBucket}}/weights/org/nli/{OLD}/"
    assert models[1]["nli"].pop("option.model_id") == f"s3://{{WeightsBucket}}/weights/org/nli/{NEW}/"
    assert models[0] == models[1]


def test_bucket_is_told_to_the_function_and_to_callers() -> None:
    """The custom resource, the output and the stack of the weights have the same bucket name."""
    template = template_of(make_stack(catalog()))
    assert only(template, "Custom::LmiModelStore")[1]["Properties"]["WeightsBucket"] == BUCKET
    assert template["Outputs"]["WeightsBucket"]["Value"] == BUCKET
    assert only(weights_template(catalog()), "AWS::S3::Bucket")[1]["Properties"]["BucketName"] == BUCKET


def test_bucket_that_is_there_already_is_used() -> None:
    """A catalog with `weights_bucket` uses this bucket, and no stack creates one."""
    made = catalog(storage={"weights_bucket": "bucket-of-mine"})
    assert not needs_weights_stack(made)
    template = template_of(make_stack(made))
    assert template["Outputs"]["WeightsBucket"]["Value"] == "bucket-of-mine"
    assert ("s3:GetObject", "arn:aws:s3:::bucket-of-mine/weights/*") in reads(template, "Endpoint")


@pytest.mark.parametrize(("source", "publisher"), [("s3", False), ("archive", True)])
def test_the_key_of_a_bucket_of_the_users_own_may_decrypt(source: str, *, publisher: bool) -> None:
    """Containers may decrypt with the bucket's key, and so may the function if S3 copies weights for it."""
    model = {"model_id": "org/nli", "revision": OLD, "task": "text-classification", "weights": source}
    storage = {"weights_bucket": "bucket-of-mine", "weights_kms_key": KEY}
    template = template_of(make_stack(make_catalog(storage=storage, models={"nli": model})))
    found = {
        role: [one["Action"] for one in statements(template, role) if one["Resource"] == KEY]
        for role in resources(template, "AWS::IAM::Role")
    }
    assert [rights for role, rights in found.items() if role.startswith("EndpointExecutionRole")] == [["kms:Decrypt"]]
    expected = ["kms:Decrypt"] if publisher else []
    assert [rights for role, rights in found.items() if role.startswith("ModelStoreRole")] == [expected]


def test_catalog_without_pushed_weights_needs_no_stack() -> None:
    """A catalog without weights in S3 has no stack for weights."""
    assert not needs_weights_stack(make_catalog())
    assert needs_weights_stack(catalog())


def test_bucket_is_private_and_forgets_halves_of_uploads() -> None:
    """The bucket of the weights is encrypted and private, requires TLS, and deletes unfinished uploads."""
    template = weights_template(catalog())
    bucket_id, bucket = only(template, "AWS::S3::Bucket")
    properties = bucket["Properties"]
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert "BucketEncryption" in properties
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    _, policy = only(template, "AWS::S3::BucketPolicy")
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert policy["Properties"]["Bucket"] == {"Ref": bucket_id}
    assert bucket["DeletionPolicy"] == "Delete"


def test_kept_bucket_outlives_its_stack() -> None:
    """`on_destroy: keep` retains the bucket of the weights after its stack is deleted."""
    _, bucket = only(weights_template(catalog(storage={"on_destroy": "keep"})), "AWS::S3::Bucket")
    assert bucket["DeletionPolicy"] == "Retain"
