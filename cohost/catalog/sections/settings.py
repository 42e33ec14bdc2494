"""What all parts of a catalog share: how strictly they are read, and forms of text that several of them take."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

INSTANCE_TYPE: Final = r"^ml\.[a-z0-9-]+\.[a-z0-9]+$"
IMAGE: Final = r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
"""`repository:tag` of an AWS deep learning container."""
EMAIL: Final = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
EMAIL_CHARACTERS: Final = 254


class Settings(BaseModel):
    """What all parts of a catalog share: immutable, and a key that nobody reads is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
