"""Reading YAML with lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cohost.catalog.yaml_source import read_yaml

if TYPE_CHECKING:
    from pathlib import Path


def test_each_value_knows_its_line(tmp_path: Path) -> None:
    """Each value has its line, in block and in flow style."""
    path = tmp_path / "a.yaml"
    path.write_text("a:\n  b:\n    - x\n    - y\nc: {d: 1}\n")

    source = read_yaml(path)

    assert source.data == {"a": {"b": ["x", "y"]}, "c": {"d": 1}}
    assert [source.line_of(at) for at in ("a", "a.b", "a.b.1", "c.d")] == [1, 2, 4, 5]


def test_what_is_not_in_the_file_has_the_line_around_it(tmp_path: Path) -> None:
    """A missing key has the line of the mapping in which it is missing."""
    path = tmp_path / "a.yaml"
    path.write_text("x: 1\na:\n  b: 1\n")

    source = read_yaml(path)

    assert source.line_of("a.missing") == 2
    assert source.line_of("missing") == 1


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    """Anchors and merge keys work, and an own key overrides a merged one."""
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\n")

    source = read_yaml(path)

    assert source.data["use"] == {"a": 1, "b": 3}
    assert source.faults == []


def test_alias_to_itself_is_a_fault(tmp_path: Path) -> None:
    """An alias to itself is a fault of the catalog."""
    path = tmp_path / "a.yaml"
    path.write_text("a: &a\n  b: *a\n")

    (fault,) = read_yaml(path).faults

    assert (fault.code, fault.field, fault.line) == ("alias-loop", "a.b", 2)
