"""Generated physical names."""

from __future__ import annotations

import re

from local_aws.cloudformation.resources.base import physical_name


def test_name_has_stack_logical_id_and_a_random_part() -> None:
    """A generated name has CloudFormation's form and is unique."""
    name = physical_name("MyStack", "Bucket", limit=128)
    assert re.fullmatch(r"MyStack-Bucket-[A-Z0-9]{12}", name)
    assert physical_name("MyStack", "Bucket", limit=128) != name


def test_name_keeps_its_limit_and_its_random_part() -> None:
    """A long generated name is cut without losing its random part."""
    for stack, logical_id in (("s" * 100, "r" * 100), ("s" * 100, "r"), ("s", "r" * 100)):
        name = physical_name(stack, logical_id, limit=63, lower=True)
        assert len(name) <= 63
        assert re.fullmatch(r"s+-r+-[a-z0-9]{12}", name)
