"""Failures of worker processes count against the model's threshold."""

from __future__ import annotations

import pytest

from local_aws.lmi.settings import ServerRules
from local_aws.lmi.workers.worker_process import Failures


@pytest.mark.parametrize(("count", "exceeded"), [(0, False), (2, False), (3, True)])
def test_the_failure_after_the_last_that_is_allowed_is_final(count: int, *, exceeded: bool) -> None:
    """With retry_threshold=2 the third failure is final."""
    failures = Failures(2, ServerRules(fail_fast=True))
    failures.count = count
    assert (failures.exceeded, failures.final, failures.ends_server) == (exceeded, exceeded, exceeded)
