"""A YAML reader that records the line of every value and reports duplicate keys.

PyYAML's own loader keeps the last of two equal keys and drops line numbers. A catalog needs reports of duplicate keys
and line numbers: a model that is defined twice is a mistake, and a line number locates a fault fastest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

MERGE_TAG = "tag:yaml.org,2002:merge"
MOST_REPEATED = 100_000
"""The most values that a file's aliases may repeat; 360 models that all merge one base of 20 settings repeat 7,200."""
DEEPEST = 100
"""The most levels of lists and mappings inside each other; a catalog has six."""


class ExpansionError(yaml.YAMLError):
    """A small file expands to far too many values through aliases of aliases, or nests values too deep."""


@dataclass(kw_only=True)
class YamlSource:
    """The content of one YAML file: plain data, the line of each value, and the faults found while reading.

    `lines` maps the path of a value, keys and indices joined by dots, to the value's line, counted from 1. `faults`
    holds mistakes that YAML itself accepts, such as duplicate keys.
    """

    data: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    faults: list[CatalogError] = field(default_factory=list)

    def line_of(self, path: str) -> int:
        """Return the line of the value at a path, or of the nearest value that contains it; 1 if neither exists."""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 1)


def read_yaml(path: Path) -> YamlSource:
    """Return the content of a file with one YAML document.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: the file is not UTF-8.
        yaml.YAMLError: the text is not YAML, or holds more than one document.
        ExpansionError: the file's aliases repeat too many values, or it nests values too deep.
    """
    source = YamlSource()
    loader = yaml.CSafeLoader(path.read_text(encoding="utf-8"))
    try:
        node = loader.get_single_node()
        if node is not None:
            _check_expansion(node)
            source.data = _Builder(loader, source).build(node, "")
    finally:
        loader.dispose()
    return source


def read_plain_yaml(path: Path) -> Any:  # YAML holds anything
    """Return the plain data of a file with one YAML document, None for an empty file.

    Raises:
        OSError, UnicodeDecodeError, yaml.YAMLError, ExpansionError: as `read_yaml`.
    """
    loader = yaml.CSafeLoader(path.read_text(encoding="utf-8"))
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_expansion(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_expansion(root: yaml.Node) -> None:
    """Raise ExpansionError if a document becomes far too large or too deep when its aliases are expanded.

    The check visits each YAML node once, so a small file that would take minutes to expand is refused at once.
    """
    sizes: dict[yaml.Node, int] = {}
    depths: dict[yaml.Node, int] = {}
    waiting = [(root, False)]
    while waiting:
        node, counted = waiting.pop()
        children = _children(node)
        if counted:
            sizes[node] = 1 + sum(sizes[child] for child in children)
            depths[node] = 1 + max((depths[child] for child in children), default=0)
        elif node not in sizes:
            # A node that contains itself meets these values, and `_Builder` reports it.
            sizes[node] = depths[node] = 0
            waiting += [(node, True), *((child, False) for child in children)]
    if sizes[root] - len(sizes) > MOST_REPEATED:
        raise ExpansionError(f"its aliases repeat {sizes[root] - len(sizes)} values; allowed: {MOST_REPEATED}")
    if depths[root] > DEEPEST:
        raise ExpansionError(f"it nests values {depths[root]} levels deep; allowed: {DEEPEST}")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Builder:
    """A converter from YAML nodes to plain data that records the line of each value in a YamlSource."""

    def __init__(self, loader: yaml.CSafeLoader, source: YamlSource) -> None:
        self._loader = loader
        self._source = source
        self._open: list[yaml.Node] = []

    def build(self, node: yaml.Node, path: str) -> Any:  # a YAML file may have a value of any type
        line = self._source.lines.setdefault(path, node.start_mark.line + 1)
        if node in self._open:
            fix = "write the value out instead of the alias"
            self._source.faults.append(CatalogError("alias-loop", path, "refers to itself", fix=fix, line=line))
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.build(item, _below(path, index)) for index, item in enumerate(node.value)]
            return self._loader.construct_object(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        repeated = self._refuse_duplicates(node, path)
        if any(key.tag == MERGE_TAG for key, _ in node.value):
            # Insert merged keys (`<<`) before the mapping's own keys, so that the own keys win below.
            self._loader.flatten_mapping(node)
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = None if key_node in repeated else self._key(key_node, path)
            if key is not None:
                self._source.lines[_below(path, key)] = key_node.start_mark.line + 1
                built[key] = self.build(value_node, _below(path, key))
        return built

    def _key(self, node: yaml.Node, path: str) -> str | None:
        key = self._loader.construct_object(node) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(key, str):
            return key
        text = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        problem, fix, line = f"the key {text} is not text to YAML", "put the key in quotes", node.start_mark.line + 1
        self._source.faults.append(CatalogError("key-not-text", path or "the file", problem, fix=fix, line=line))
        return None

    def _refuse_duplicates(self, node: yaml.MappingNode, path: str) -> list[yaml.Node]:
        """Record a fault for each repeated key of a mapping, and return the nodes of the repetitions."""
        first: dict[str, int] = {}
        repeated: list[yaml.Node] = []
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == MERGE_TAG:
                continue
            key, line = key_node.value, key_node.start_mark.line + 1
            if key in first:
                problem, fix = f"is a duplicate key, first defined on line {first[key]}", "remove one"
                fault = CatalogError("key-twice", _below(path, key), problem, fix=fix, line=line)
                self._source.faults.append(fault)
                repeated.append(key_node)
            first.setdefault(key, line)
        return repeated


def _below(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)
