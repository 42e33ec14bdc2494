"""Reading YAML with lines."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from fakes.refusals import refused

from cohost.catalog.yaml_source import ExpansionError, read_plain_yaml, read_yaml
from cohost.catalog_file import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
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


def alias_bomb(levels: int) -> str:
    """A text whose lists each hold nine aliases of the list before."""
    rows = [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(["a0: &a0 [x,x,x,x,x,x,x,x,x]", *rows])


def merge_bomb(levels: int) -> str:
    """A text whose mappings each merge nine times the mapping before."""
    rows = [f"m{level}: &m{level} {{<<: [{','.join([f'*m{level - 1}'] * 9)}]}}" for level in range(1, levels)]
    return "\n".join(["m0: &m0 {k: v}", *rows])


@pytest.mark.parametrize("text", [alias_bomb(12), merge_bomb(12), "a: " + "[" * 200 + "]" * 200])
@pytest.mark.parametrize("read", [read_yaml, read_plain_yaml])
def test_a_small_file_that_stands_for_a_huge_one_is_refused(
    tmp_path: Path, read: Callable[[Path], object], text: str
) -> None:
    """A catalog of a few hundred bytes takes neither minutes nor gigabytes: it is refused before it is written out."""
    path = tmp_path / "a.yaml"
    path.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(ExpansionError):
            read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_a_catalog_says_which_file_stands_for_too_many_values(tmp_path: Path) -> None:
    """The user reads an error of the catalog with the file's name, not a traceback."""
    path = tmp_path / "a.yaml"
    path.write_text(alias_bomb(12))
    with refused("yaml-expands", "the file"):
        load_catalog(path)


def test_many_models_may_share_one_base(tmp_path: Path) -> None:
    """The most models that one deploy takes, each with the settings of one base, are no fault."""
    settings = ", ".join(f"s{number}: 1" for number in range(30))
    rows = "".join(f"  m{number}: {{<<: *base, own: {number}}}\n" for number in range(360))
    path = tmp_path / "a.yaml"
    path.write_text(f"base: &base {{{settings}}}\nmodels:\n{rows}")

    source = read_yaml(path)

    assert source.data["models"]["m359"]["s29"] == 1
    assert source.data["models"]["m359"]["own"] == 359
