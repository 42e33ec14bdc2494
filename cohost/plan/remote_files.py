"""Model files on the Hub, read by range requests so that no weights are downloaded. Used only when a user asks."""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

from cohost.plan.errors import PlanError

DEFAULT_HUB: Final = "https://huggingface.co"
_TIMEOUT_SECONDS: Final = 30
_NOT_FOUND: Final = 404
_DENIED: Final = frozenset({401, 403})


def hub_url() -> str:
    """The Hub's address: HF_ENDPOINT as in Hugging Face's own tools, else the public one."""
    return os.environ.get("HF_ENDPOINT", DEFAULT_HUB).rstrip("/")


class HubFiles:
    """The files of one model in one revision, as the Hub serves them under `<hub>/<id>/resolve/<revision>/`.

    Raises:
        PlanError: the Hub's address is not http or https.
    """

    def __init__(self, model_id: str, revision: str | None, *, hub: str | None = None) -> None:
        self._base = f"{hub or hub_url()}/{model_id}/resolve/{revision or 'main'}/"
        if not self._base.startswith(("https://", "http://")):
            raise PlanError(f"HF_ENDPOINT: {self._base!r} is no web address; allowed: https://…; fix: unset it")

    @property
    def where(self) -> str:
        """The address of the model's files."""
        return self._base

    def read(self, name: str) -> bytes | None:
        """A whole file; None where there is none of that name."""
        return self._get(name, {})

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """`size` bytes from `start`; None where there is no such file.

        A server that does not know ranges would send the whole file, of which the part is taken.
        """
        return self._get(name, {"Range": f"bytes={start}-{start + size - 1}"}, limit=start + size)

    def _get(self, name: str, headers: dict[str, str], *, limit: int | None = None) -> bytes | None:
        request = urllib.request.Request(self._base + urllib.parse.quote(name), headers=headers)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked
                if headers and answer.status != _PARTIAL:
                    return _part(answer.read(limit), headers["Range"])
                return bytes(answer.read(limit))
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise PlanError(_explain(self._base + name, error)) from error
        except OSError as error:
            raise PlanError(
                f"{self._base}{name}: cannot be reached ({error}); fix: check the network, or download the model and "
                "inspect the folder with --folder"
            ) from error


_PARTIAL: Final = 206


def _part(content: bytes, wanted: str) -> bytes:
    first = int(wanted.removeprefix("bytes=").partition("-")[0])
    return content[first:]


def _explain(address: str, error: urllib.error.HTTPError) -> str:
    if error.code in _DENIED:
        return (
            f"{address}: answered {error.code}, so the model is private, gated or not there; fix: check the id, or "
            "download it with your account and inspect the folder with --folder"
        )
    return f"{address}: answered {error.code} {error.reason}; fix: try again later"
