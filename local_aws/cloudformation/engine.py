"""The operations on stacks: the statuses that each operation passes through, and the work in each status.

Each operation runs in its own thread. Callers get the stack's id at once, and poll the stack's events.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from local_aws.cloudformation.context import DeployedValues, check_exports, outputs_of, reject_if_used
from local_aws.cloudformation.deployment import Deployment, clean_up_after_success, delete_all, failure_reason
from local_aws.cloudformation.errors import ValidationError
from local_aws.cloudformation.resources.handler_rights import calling
from local_aws.cloudformation.rollback import ROLLBACK_PREFIXES, roll_back, run_rollback
from local_aws.cloudformation.state import Journal, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_aws.cloudformation.context import Context
    from local_aws.cloudformation.state import Stack, Target


LOGGER: Final = logging.getLogger(__name__)
# The statuses from which a stack can be updated: after a success, or after a failure with rollback switched off.
UPDATABLE: Final = frozenset(
    {"CREATE_COMPLETE", "CREATE_FAILED", "UPDATE_COMPLETE", "UPDATE_FAILED", "UPDATE_ROLLBACK_COMPLETE"}
)


class Engine:
    """Runs the operations of one region's stacks."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def create(self, stack: Stack, target: Target, *, token: str | None, on_failure: str = "ROLLBACK") -> None:
        """Create all resources of a new stack.

        Args:
            stack: the stack, without resources.
            target: the template, parameters and tags that the stack is to have.
            token: the caller's ClientRequestToken, which the events repeat.
            on_failure: `ROLLBACK`, `DO_NOTHING` or `DELETE`.
        """
        stack.target = target
        stack.journal = Journal(previous=None, before={}, definitions={})
        self._start(stack, "CREATE_IN_PROGRESS", token, lambda: self._create(stack, target, on_failure))

    def update(self, stack: Stack, target: Target, *, token: str | None, disable_rollback: bool = False) -> None:
        """Update an existing stack to another target (template, parameters and tags).

        Raises:
            ValidationError: the stack's status does not allow an update.
        """
        if stack.status not in UPDATABLE:
            raise ValidationError(f"Stack:{stack.arn} is in {stack.status} state and can not be updated.")
        if stack.journal is None:
            stack.journal = Journal(
                previous=stack.target,
                before={key: one.live for key, one in stack.resources.items() if one.live is not None},
                definitions={key: one.definition for key, one in stack.resources.items()},
            )
        stack.target = target
        stack.updated = now()
        work = lambda: self._update(stack, target, disable_rollback=disable_rollback)  # noqa: E731 - one use
        self._start(stack, "UPDATE_IN_PROGRESS", token, work)

    def roll_back(self, stack: Stack, *, token: str | None) -> None:
        """Roll back an operation that failed with rollback switched off, or retry a failed rollback.

        Raises:
            ValidationError: the stack's status does not allow a rollback.
        """
        prefix = ROLLBACK_PREFIXES.get(stack.status)
        if prefix is None or stack.journal is None:
            raise ValidationError(f"Stack:{stack.arn} is in {stack.status} state and can not be rolled back.")
        self._start(
            stack, f"{prefix}_IN_PROGRESS", token, lambda: run_rollback(self.context, stack, prefix, reason=None)
        )

    def delete(self, stack: Stack, *, token: str | None, retain: set[str]) -> None:
        """Delete a stack; if the stack is being created, its creation is stopped first.

        Raises:
            ValidationError: the stack is protected, is being changed, or has exports in use.
        """
        if stack.termination_protection:
            raise ValidationError(f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled")
        for export in stack.exports:
            reject_if_used(self.context, export, "deleted")
        if stack.status == "CREATE_IN_PROGRESS":
            stack.cancelled.set()
            stack.settled.wait()
        if not stack.settled.is_set():
            raise ValidationError(f"Stack [{stack.name}] cannot be deleted while in status {stack.status}")
        self._start(stack, "DELETE_IN_PROGRESS", token, lambda: self._delete(stack, retain))

    def stop(self) -> None:
        """End the long waits of all running operations, because the process is about to exit."""
        for stack in self.context.stacks:
            stack.cancelled.set()

    def _start(self, stack: Stack, status: str, token: str | None, work: Callable[[], None]) -> None:
        # A caller may react to the last status so soon that the thread of the previous operation has not ended.
        stack.settled.wait()
        stack.settled.clear()
        stack.cancelled.clear()
        stack.token = token
        stack.caller = calling.get()
        stack.set_status(status, "User Initiated")
        threading.Thread(target=self._guarded, args=(stack, work), name=f"stack-{stack.name}", daemon=True).start()

    @staticmethod
    def _guarded(stack: Stack, work: Callable[[], None]) -> None:
        """Run an operation on a stack, and set the event `settled` at its end, even if the operation raises."""
        try:
            work()
        except Exception as error:
            LOGGER.exception("Operation on stack %s ended by a fault of the engine", stack.name)
            verb = stack.status.removesuffix("_IN_PROGRESS").removesuffix("_COMPLETE_CLEANUP")
            stack.set_status(f"{verb}_FAILED", f"Internal Failure: {error}")
        finally:
            stack.settled.set()

    def _create(self, stack: Stack, target: Target, on_failure: str) -> None:
        reason = self._forward(stack, target)
        if reason is None:
            stack.journal = None
            stack.set_status("CREATE_COMPLETE")
        elif on_failure == "DO_NOTHING":
            stack.set_status("CREATE_FAILED", reason)
        elif on_failure == "DELETE":
            stack.set_status("DELETE_IN_PROGRESS", f"{reason}Delete requested by user.")
            self._delete(stack, set())
        else:
            roll_back(self.context, stack, "ROLLBACK", reason=reason)

    def _update(self, stack: Stack, target: Target, *, disable_rollback: bool) -> None:
        reason = self._forward(stack, target)
        journal = stack.open_journal
        if reason is None:
            stack.set_status("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
            # An old resource that cannot be deleted shows in the events; the update itself has succeeded.
            clean_up_after_success(self.context, stack, target, journal)
            stack.journal = None
            stack.set_status("UPDATE_COMPLETE")
        elif disable_rollback:
            stack.set_status("UPDATE_FAILED", reason)
        else:
            roll_back(self.context, stack, "UPDATE_ROLLBACK", reason=reason)

    def _forward(self, stack: Stack, target: Target) -> str | None:
        """Deploy the target and compute the stack's outputs; return the reason of a failure, or None on success."""
        deployment = Deployment(self.context, stack, target, stack.open_journal)
        failures = deployment.run()
        if failures:
            return failure_reason(stack, failures)
        try:
            resolver = self.context.resolver(stack, target, DeployedValues(stack), imports=deployment.imports)
            outputs = outputs_of(target, resolver)
            check_exports(self.context, stack, outputs)
        except ValidationError as error:
            return f"{error.message}. "
        stack.outputs, stack.imports = outputs, deployment.imports
        return None

    def _delete(self, stack: Stack, retain: set[str]) -> None:
        journal = stack.journal or Journal(previous=None, before={}, definitions={})
        failures = delete_all(self.context, stack, journal, retain=retain)
        if failures:
            stack.set_status("DELETE_FAILED", failure_reason(stack, failures))
            return
        stack.deleted = now()
        stack.outputs, stack.imports = [], set()
        stack.set_status("DELETE_COMPLETE")
