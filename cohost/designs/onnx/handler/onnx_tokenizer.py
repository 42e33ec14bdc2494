"""Read the tokenizer from the folder of an ONNX model, without transformers, which the ONNX handler does not need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cohost.handler.cohost_tokenizer import PlainTokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAD = "[PAD]"
_ROBERTA_PAD = "<pad>"


def tokenizer_in(folder: str, *, segments: bool) -> PlainTokenizer:
    """Return the tokenizer that is in a folder; `segments` is true if the model reads segment ids.

    Raises:
        OSError: one of the two files is missing.
        Exception: any exception of the package tokenizers for a file that it cannot read.
    """
    config = json.loads(Path(folder, "tokenizer_config.json").read_bytes())
    maximum = int(config.get("model_max_length", 0)) or None
    text = Path(folder, "tokenizer.json").read_text(encoding="utf-8")
    side = config.get("truncation_side", "right")
    tokenizer = PlainTokenizer(text, segments=segments, padding_id=None, maximum=maximum, side=side)
    tokenizer.pad_token_id = _padding_id(tokenizer, config)
    return tokenizer


def _padding_id(tokenizer: PlainTokenizer, config: Mapping[str, Any]) -> int | None:
    """Return the id of the padding token, which the configuration states as a string or an object with a string."""
    token = config.get("pad_token")
    text = token.get("content") if isinstance(token, dict) else token
    known = (tokenizer.token_to_id(one) for one in (text, _PAD, _ROBERTA_PAD) if isinstance(one, str))
    return next((one for one in known if one is not None), None)
