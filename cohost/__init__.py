"""Serve several encoder models on one GPU and one SageMaker endpoint; this package is the core, without CDK.

Other programs import only the names in `__all__`, as in `from cohost import CohostClient`; the modules below may move.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cohost.catalog.models import Catalog
    from cohost.catalog_file import LoadedCatalog, load_catalog
    from cohost.endpoint.client import CohostClient
    from cohost.endpoint.stack_outputs import Deployment, read_deployment
    from cohost.errors import CohostError

__all__ = [
    "Catalog",
    "CohostClient",
    "CohostError",
    "Deployment",
    "LoadedCatalog",
    "load_catalog",
    "read_deployment",
]

_HOMES = {
    "Catalog": "cohost.catalog.models",
    "CohostClient": "cohost.endpoint.client",
    "CohostError": "cohost.errors",
    "Deployment": "cohost.endpoint.stack_outputs",
    "LoadedCatalog": "cohost.catalog_file",
    "load_catalog": "cohost.catalog_file",
    "read_deployment": "cohost.endpoint.stack_outputs",
}


def __getattr__(name: str) -> Any:  # the type depends on the name
    """Import a name at its first use, so that the handler and the Lambda function in this package load nothing else."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
