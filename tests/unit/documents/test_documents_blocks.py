"""The documentation's code blocks parse and name existing commands; tests/e2e/test_documents.py runs them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from fakes import command_lines
from fakes.pages import KINDS, PROJECT, Block, all_blocks, blocks, code_spans, is_catalog_fragment, pages, write_into
from fakes.refusals import refused

from cohost.catalog_file import load_catalog
from cohost.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

SHELL = ("", "bash", "console", "sh")
COMMANDS = ("run", "account", "make")
COMMENT = re.compile(r"\s*(?<![\w$])#\s.*$", re.MULTILINE)


def blocks_of(*kinds: str) -> list[Block]:
    """Return all code blocks with one of these marks."""
    return [block for block in all_blocks() if block.kind in kinds]


def test_every_block_says_who_holds_it_true() -> None:
    """Each code block has a mark, and CONTRIBUTING.md explains the marks."""
    wrong = [str(block) for block in all_blocks() if block.kind not in KINDS]

    assert not wrong, f"without a mark ({', '.join(KINDS)}) in the line above: {wrong}"


def test_a_block_without_a_mark_is_found(tmp_path: Path) -> None:
    """A code block without a mark is found, also in a list."""
    page = tmp_path / "page.md"
    page.write_text("<!-- run -->\n```\na\n```\n\n```\nb\n```\n- x\n  <!-- file f.yaml -->\n  ```yaml\n  c: 1\n  ```\n")

    assert [(block.kind, block.name, block.language) for block in blocks(page)] == [
        ("run", None, ""),
        (None, None, ""),
        ("file", "f.yaml", "yaml"),
    ]


def typed() -> list[Any]:
    """Return each block of commands as a parameter, marked as a process if it needs the options of Locust."""
    return [
        pytest.param(block, id=str(block), marks=pytest.mark.process if "locust" in block.text else ())
        for block in blocks_of(*COMMANDS)
        if block.language in SHELL
    ]


@pytest.mark.parametrize("block", typed())
def test_commands_have_the_subcommands_and_options_that_are_written(block: Block) -> None:
    """A command that a page shows can be typed: program, subcommand, options, files and targets exist."""
    assert command_lines.faults(block.text) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cohost nope", "no subcommand 'nope'"),
        ("cohost weights nope", "no subcommand 'nope'"),
        ("true; cohost cost --nope", "no option --nope"),
        ('eval "$(cohost local upp)"', "no subcommand 'upp'"),
        ("make nope  # a comment", "no target 'nope'"),
        ("cdk deploy NoSuchStack", "no stack 'NoSuchStack'"),
        ("cdk fly", "no subcommand 'fly'"),
        ("cdk deploy --nope", "no option --nope"),
        pytest.param("locust --nope", "no option --nope", marks=pytest.mark.process),
        ("aws sagemaker delete-endpoints", "no operation"),
        ("aws sagemaker delete-endpoint --name x", "no option --name"),
        ("python benchmarks/nope.py", "no file benchmarks/nope.py"),
        ("terraform apply", "unknown program"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, fault: str) -> None:
    """Each check of command lines finds a wrong command."""
    assert any(fault in found for found in command_lines.faults(text)), command_lines.faults(text)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands_in_running_text_exist(page: Path) -> None:
    """Each `cohost …` and `make …` in a sentence of a page exists, with its options."""
    spans = ((line, span) for line, span in code_spans(page) if re.match(r"(cohost|make|cdk) [a-z]", span))
    wrong = [(line, fault) for line, span in spans for fault in command_lines.faults(re.sub(r"[\[\]…]", "", span))]

    assert not wrong


def test_make_blocks_name_targets() -> None:
    """Each line of a block with the mark `make` is an existing target of the Makefile."""
    for block in blocks_of("make"):
        programs = {command[0] for command in command_lines.commands(block.text)}
        assert programs == {"make"}, str(block)


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.language == "yaml"], ids=str)
def test_yaml_can_be_read_and_parts_of_a_catalog_are_taken(block: Block, tmp_path: Path) -> None:
    """A reader may copy a fragment into a catalog; a page shows none that the catalog refuses."""
    data = yaml.safe_load(block.text)

    if is_catalog_fragment(data):
        # What a page's commands work with is a catalog of models that are on this machine.
        load_catalog(put_into("offline.yaml" if block.kind == "catalog" else "encoders.yaml", data, tmp_path))
    else:
        assert block.kind != "catalog", f"{block}: has keys that no catalog has"


def put_into(name: str, fragment: dict[str, Any], folder: Path) -> Path:
    """Return one of the project's catalogs with a fragment in it."""
    file = folder / "catalog.yaml"
    file.write_text((PROJECT / "model_configs" / name).read_text(encoding="utf-8"), encoding="utf-8")
    write_into(file, yaml.safe_dump(fragment))
    return file


def test_a_fragment_that_no_catalog_takes_is_found(tmp_path: Path) -> None:
    """A fragment of a catalog with a wrong key or value is found."""
    with refused("key-unknown", "endpoint.instance_typo", kind=CatalogError):
        load_catalog(put_into("encoders.yaml", {"endpoint": {"instance_typo": "ml.g5.xlarge"}}, tmp_path))
    with refused("bounds-crossed", kind=CatalogError):
        load_catalog(put_into("encoders.yaml", {"scaling": {"min": 2, "max": 1}}, tmp_path))


def test_readme_has_the_same_blocks_in_every_language() -> None:
    """README in each language has the same code blocks; only the English ones are run."""
    english, korean = (
        [(block.kind, block.language, COMMENT.sub("", block.text)) for block in blocks(PROJECT / name)]
        for name in ("README.md", "README.ko.md")
    )
    assert english == korean


def test_json_and_python_can_be_read() -> None:
    """Each block of JSON or Python in a page can be parsed."""
    readers = {"json": json.loads, "python": lambda text: compile(text, "page", "exec")}
    for block in all_blocks():
        if block.language in readers:
            readers[block.language](block.text)
