"""The rules for GPU partitions: the layout of a production variant, and the partition of an inference component.

Source: SageMaker developer guide, "Create an endpoint with GPU partitions", "Deploy models to GPU partitions with
inference components" and "Manage GPU partitioned endpoints", and the API reference of AcceleratorPartitionLayout, read
2026-12-01. The sources state which requests SageMaker refuses, and the content of its errors. No source quotes the
errors' texts, so the texts are the emulator's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cohost.hardware.partitions import GPU, PROFILES, fits, needed, unknown_profiles
from local_aws.kit.errors import ValidationException

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local_aws.sagemaker.hosting.endpoint import Endpoint
    from local_aws.sagemaker.hosting.endpoint_snapshot import VariantPlan


def check_layouts(variant: Mapping[str, Any]) -> None:
    """Check the AcceleratorPartitionLayouts of a production variant in CreateEndpointConfig.

    Raises:
        ValidationException: there is not exactly one layout, it is empty or for a variant with a model, or its
            partitions are none of the instance type's or do not fit on one GPU.
    """
    if (layouts := variant.get("AcceleratorPartitionLayouts")) is None:
        return
    name, instance_type = variant["VariantName"], variant["InstanceType"]
    if len(layouts) != 1:
        raise ValidationException(
            f"AcceleratorPartitionLayouts of production variant {name} must contain exactly 1 entry, not {len(layouts)}"
        )
    if variant.get("ModelName") is not None:
        raise ValidationException(
            f"AcceleratorPartitionLayouts of production variant {name}: partitions are for inference components, and "
            "the variant has a ModelName"
        )
    layout = layouts[0].get("AcceleratorPartitionTypes") or []
    if not layout or (unknown := unknown_profiles(layout, instance_type)):
        wrong = ", ".join(unknown) if layout else "no partition type"
        valid = ", ".join(PROFILES.get(instance_type, ())) or "none"
        raise ValidationException(
            f"AcceleratorPartitionTypes of production variant {name}: {wrong} is not valid for {instance_type}. Valid "
            f"partition types: {valid}"
        )
    if not fits(layout, instance_type):
        raise ValidationException(
            f"AcceleratorPartitionTypes of production variant {name} do not fit on one accelerator of {instance_type}: "
            f"it provides {GPU}, requested are {needed(layout, instance_type)}"
        )


def check_partition(requirements: Mapping[str, Any], layout: Sequence[str]) -> None:
    """Check the AcceleratorPartitionType of an inference component against the layout of its variant.

    Raises:
        ValidationException: the type is missing although the variant has a layout, is not in the layout, is given
            without a layout, or does not come with one accelerator.
    """
    partition = requirements.get("AcceleratorPartitionType")
    declared = ", ".join(dict.fromkeys(layout))
    if partition is None:
        if layout:
            raise ValidationException(
                "AcceleratorPartitionType is required, because the endpoint has an accelerator partition layout. "
                f"Declared partition types: {declared}"
            )
        return
    if not layout:
        raise ValidationException(
            f"AcceleratorPartitionType {partition}: the endpoint has no accelerator partition layout. Omit the member "
            "to place the inference component on a whole accelerator"
        )
    if partition not in layout:
        raise ValidationException(
            f"AcceleratorPartitionType {partition} is not declared by the endpoint's layout. Declared partition types: "
            f"{declared}"
        )
    if requirements.get("NumberOfAcceleratorDevicesRequired") != 1:
        raise ValidationException(
            "NumberOfAcceleratorDevicesRequired must be 1 with an AcceleratorPartitionType: it is one partition"
        )


def check_same_partition(former: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ValidationException if an update of a Specification changes the component's partition type."""
    before, after = (
        (one.get("ComputeResourceRequirements") or {}).get("AcceleratorPartitionType") for one in (former, wanted)
    )
    if before != after:
        raise ValidationException(
            f"AcceleratorPartitionType cannot be changed from {before} to {after}. Create another inference component "
            "with the new type"
        )


def check_same_layouts(endpoint: Endpoint, plans: Sequence[VariantPlan]) -> None:
    """Raise ValidationException if an update of an endpoint changes a variant's layout, even only its order."""
    former = {} if endpoint.fleet is None else endpoint.fleet.variants
    for plan in plans:
        if plan.name in former and former[plan.name].plan.partitions != plan.partitions:
            raise ValidationException(
                f'Cannot change AcceleratorPartitionLayouts of variant {plan.name} of endpoint "{endpoint.arn}". '
                "Create a new endpoint with the new layout"
            )
