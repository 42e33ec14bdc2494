"""An ordered list of (key, value) pairs: the content of a request or an answer."""

from __future__ import annotations


class PairList:
    """Pairs in their order; a key may be None or stand several times, `get` finds the first."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.values: list[bytes] = []

    def add(self, key: str | None = None, value: bytes | None = None) -> None:
        """Appends a pair; a value of None is left out."""
        if value is not None:
            self.keys.append(key)
            self.values.append(value)

    def size(self) -> int:
        """How many pairs there are."""
        return len(self.keys)

    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self.keys

    def get(self, key: str | None) -> bytes | None:
        """The value of the first pair with that key, or None."""
        return self.values[self.keys.index(key)] if key in self.keys else None

    def key_at(self, index: int) -> str | None:
        """The key of a pair by position."""
        return self.keys[index]

    def value_at(self, index: int) -> bytes:
        """The value of a pair by position."""
        return self.values[index]

    def get_keys(self) -> list[str | None]:
        """All keys in order."""
        return self.keys

    def get_values(self) -> list[bytes]:
        """All values in order."""
        return self.values
