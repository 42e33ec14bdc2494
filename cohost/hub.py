"""Access the Hugging Face Hub through the library huggingface_hub, and turn its errors into one line with a fix.

The library is imported inside the functions: the import takes a second, and most commands do not need the Hub.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cohost.errors import HubAccessError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from huggingface_hub import HfApi


DEFAULT_HUB: Final = "https://huggingface.co"
_TIMEOUT_SECONDS: Final = 30
_NOT_FOUND: Final = 404
_DENIED: Final = frozenset({401, 403})


def hub_url() -> str:
    """Return the Hub's URL: the variable HF_ENDPOINT, as in Hugging Face's own tools, else the public Hub's URL."""
    return os.environ.get("HF_ENDPOINT", DEFAULT_HUB).rstrip("/")


def client(token: str | bool | None = None) -> HfApi:  # noqa: FBT001 - the client's own argument
    """Return the Hub's client with `token`; False means no token, None the one of HF_TOKEN or of `hf auth login`."""
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub_url(), token=token)


def read_file(model_id: str, revision: str | None, name: str) -> bytes | None:
    """Return the content of a public model's file; None if the Hub has no such file. The request has no token.

    The file's content never comes from a cache, so a successful read proves that the Hub has the file now.
    """
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined] # documented, not declared

    url = hf_hub_url(model_id, name, revision=revision, endpoint=hub_url())
    answer = get_session().get(url, timeout=_TIMEOUT_SECONDS)
    if answer.status_code == _NOT_FOUND:
        return None
    hf_raise_for_status(answer)
    return bytes(answer.content)


@contextmanager
def explaining(model: str, *, folder: str, token: str = "") -> Iterator[None]:
    """Convert the errors that the Hub's client raises in the `with` block to HubAccessError.

    Args:
        model: the model's name for the error's text.
        folder: the command-line option that names a local folder with the model, such as `--from`.
        token: the settings that give a token, such as HF_TOKEN; empty if the caller sends no token.

    Raises:
        HubAccessError: the Hub refuses the model, does not have it, or cannot be reached.
    """
    import httpx  # httpx is the HTTP library of huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except (httpx.HTTPError, HFValidationError, OSError) as error:
        by_folder = f"name a folder that holds it with {folder}"
        access = (
            f"give a token ({token}), or {by_folder}" if token else f"download it with your account and {by_folder}"
        )
        raise _explained(error, model, access, by_folder) from error


def _explained(error: Exception, model: str, access: str, by_folder: str) -> HubAccessError:
    from huggingface_hub import errors

    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return HubAccessError("hub-gated", model, "is gated", fix=f"request access on its page, and {access}")
    if isinstance(error, errors.RevisionNotFoundError):
        return HubAccessError(
            "hub-revision-missing",
            model,
            "has no such revision",
            fix="copy the 40 digits from the model's page, under Files and versions",
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status in _DENIED:
        return HubAccessError(
            "hub-denied", model, "is private, gated or not there", fix=f"check the id; for a private model {access}"
        )
    if status is not None:
        return HubAccessError("hub-failed", model, f"the Hub answered {status}", fix="run the command again later")
    return HubAccessError(
        "hub-unreachable",
        model,
        f"cannot be read from the Hub ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})",
        fix=f"check the network and the disk's room, or {by_folder}",
    )
