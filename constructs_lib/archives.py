"""What an endpoint needs of the archives that it serves, wherever they are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam


class Archives(Protocol):
    """Archives below one address."""

    @property
    def model_data_url(self) -> str:
        """The address that SageMaker loads archives from."""

    def grant_read(self, grantee: iam.IRole) -> None:
        """Allow reading the archives and listing their keys."""
