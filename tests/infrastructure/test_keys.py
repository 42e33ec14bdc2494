"""KMS keys of the account, kept generations and termination protection from the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import pytest
from pydantic import ValidationError
from synthesis import FLAGS, make_catalog, make_stack, only, resources, statements, template_of

from cohost.catalog.models import Catalog
from cohost.hardware.images import locate_image, parse_image
from cohost.hardware.instances import has_own_disks
from constructs_lib.checks.findings import misfits
from stacks.lmi_cohost_weights_stack import LmiCohostWeightsStack

if TYPE_CHECKING:
    from pathlib import Path

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def rights_on_key(template: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the statements about the key of the only role whose logical id starts with this text."""
    [role_id] = [name for name in resources(template, "AWS::IAM::Role") if name.startswith(prefix)]
    return [one for one in statements(template, role_id) if one["Resource"] == KEY]


def endpoint_of(**fields: Any) -> list[str]:
    """Return the ids of the errors of a synth for these endpoint settings."""
    endpoint = make_catalog(endpoint=fields).endpoint
    found = misfits(endpoint, parse_image(endpoint.image), locate_image(endpoint.image, "us-east-1"), "us-east-1")
    return [one.name for one in found if one.level == "error"]


def test_bucket_is_encrypted_with_the_catalog_s_key() -> None:
    """The bucket has the KMS key with a bucket key, so S3 does not call KMS for each object."""
    template = template_of(make_stack(make_catalog(storage={"kms_key": KEY})))
    _, bucket = only(template, "AWS::S3::Bucket")
    [rule] = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {
        "BucketKeyEnabled": True,
        "ServerSideEncryptionByDefault": {"KMSMasterKeyID": KEY, "SSEAlgorithm": "aws:kms"},
    }


def test_roles_may_use_the_key_through_s3_alone() -> None:
    """The containers only decrypt, the function encrypts too, and neither can use the key for anything else."""
    template = template_of(make_stack(make_catalog(storage={"kms_key": KEY})))
    [reading] = rights_on_key(template, "EndpointExecutionRole")
    [writing] = rights_on_key(template, "ModelStoreRole")
    assert reading["Action"] == "kms:Decrypt"
    assert writing["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    via = {"Fn::Join": ["", ["s3.us-east-1.", {"Ref": "AWS::URLSuffix"}]]}
    assert reading["Condition"] == writing["Condition"] == {"StringEquals": {"kms:ViaService": via}}


def test_without_a_key_no_role_has_a_right_on_any(product: dict[str, Any]) -> None:
    """Without a key in the catalog no role has a right on KMS."""
    documents = [policy["Properties"]["PolicyDocument"] for policy in resources(product, "AWS::IAM::Policy").values()]
    assert documents
    assert "kms:" not in str(documents)


def test_weights_bucket_has_the_same_key() -> None:
    """The bucket of the weights has the KMS key of the archives."""
    catalog = make_catalog(storage={"kms_key": KEY})
    stack = LmiCohostWeightsStack(cdk.App(context=FLAGS, analytics_reporting=False), "Weights", catalog=catalog)
    _, bucket = only(template_of(stack), "AWS::S3::Bucket")
    assert KEY in str(bucket["Properties"]["BucketEncryption"])


def test_volume_key_stands_in_the_endpoint_config() -> None:
    """The KMS key encrypts the volume of a type without local disks."""
    image = {"image": "djl-inference:0.36.0-cpu-full", "instance_type": "ml.m5.xlarge"}
    template = template_of(make_stack(make_catalog(endpoint={**image, "kms_key": KEY})))
    _, config = only(template, "AWS::SageMaker::EndpointConfig")
    assert config["Properties"]["KmsKeyId"] == KEY


@pytest.mark.parametrize("instance_type", ["ml.g5.xlarge", "ml.g4dn.xlarge", "ml.g6e.2xlarge", "ml.p4d.24xlarge"])
def test_volume_key_is_refused_where_it_would_protect_nothing(instance_type: str) -> None:
    """A volume key is rejected for a type with local disks, because it cannot encrypt them."""
    assert "instance-kms-key" in endpoint_of(instance_type=instance_type, kms_key=KEY)
    assert "instance-kms-key" not in endpoint_of(instance_type=instance_type)


@pytest.mark.parametrize(
    ("instance_type", "own"),
    [
        ("ml.m5d.large", True),
        ("ml.c6id.xlarge", True),
        ("ml.r5dn.xlarge", True),
        ("ml.p3dn.24xlarge", True),
        ("ml.trn1.2xlarge", True),
        ("ml.g6.xlarge", True),
        ("ml.g7e.2xlarge", True),
        ("ml.m5.large", False),
        ("ml.c7i.xlarge", False),
        ("ml.p3.2xlarge", False),
        ("ml.inf2.xlarge", False),
        ("ml.r6i.large", False),
    ],
)
def test_types_with_disks_of_their_own_are_known_by_their_names(instance_type: str, own: bool) -> None:  # noqa: FBT001
    """Types with local disks are known by a "d" in their names, or by their families."""
    assert has_own_disks(instance_type) is own


@pytest.mark.parametrize("key", ["alias/mine", "1234abcd-12ab-34cd-56ef-1234567890ab", KEY.replace("key/", "alias/")])
def test_key_is_named_by_its_arn(key: str) -> None:
    """A KMS key must be given as an ARN, because rights need one."""
    with pytest.raises(ValidationError, match="kms_key"):
        make_catalog(storage={"kms_key": key})


def test_number_of_kept_generations_reaches_the_function(product: dict[str, Any]) -> None:
    """The function keeps two generations by default, or the number that the catalog states."""

    def kept(**storage: Any) -> object:
        _, store = only(template_of(make_stack(make_catalog(storage=storage))), "Custom::LmiModelStore")
        return store["Properties"].get("KeepGenerations")

    assert only(product, "Custom::LmiModelStore")[1]["Properties"]["KeepGenerations"] == "2"
    assert [kept(keep_generations=7), kept(keep_generations=0)] == ["7", None]


@pytest.mark.parametrize("protected", [True, False])
def test_stack_is_protected_as_the_catalog_says(protected: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The assembly has the catalog's termination protection, which `cdk deploy` passes to CloudFormation."""
    data = make_catalog().model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    stack = make_stack(Catalog.model_validate({**data, "termination_protection": protected}), outdir=tmp_path)
    assembly = stack.node.root.synth()  # type: ignore[attr-defined]
    assert bool(assembly.get_stack_by_name(stack.stack_name).termination_protection) is protected
