"""The texts, keys and outputs that pages name are those of the code, the real server's recordings, or AWS's own API."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import re
import typing
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from fakes.pages import DOCS, PROJECT, code_spans, pages
from pydantic import BaseModel

from cohost.catalog.models import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TROUBLE = DOCS / "troubleshooting.md"
CODE = ("cohost", "constructs_lib", "stacks", "local_aws", "load_tests")
SERVICES = ("sagemaker", "sagemaker-runtime", "cloudformation")
# Words of other programs, which no source at hand has: CUDA's assertion, and what JSON cannot say.
ELSEWHERE = frozenset({"device-side assert", "NaN"})
GAP = "\0"


@functools.cache
def texts() -> tuple[str, ...]:
    """All texts of our code, with a gap for each value, and the recorded answers of the real server."""
    found = [
        text
        for folder in CODE
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for text in _constants(ast.parse(path.read_text(encoding="utf-8")))
    ]
    recordings = (PROJECT / "tests/data/djl_vectors").glob("*.json")
    return (*found, *(path.read_text(encoding="utf-8") for path in recordings))


def _constants(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield "".join(map(str, parts))


@functools.cache
def words_of_aws() -> frozenset[str]:
    """The names of shapes, and the values of enumerations, of the services that a deployment meets."""
    found: set[str] = set()
    for service in SERVICES:
        model = botocore.session.get_session().get_service_model(service)
        for name in model.shape_names:
            found |= {name, *getattr(model.shape_for(name), "enum", ())}
    return frozenset(found)


def is_said(quote: str) -> bool:
    """Whether a quoted text is one that somebody says: its words, in order, with any values between them."""
    pieces = [piece.strip() for piece in re.split(r"…|<\w+>|'[a-z]'", quote)]
    pattern = re.compile(".*".join(re.escape(piece) for piece in pieces if piece), re.DOTALL)
    return any(pattern.search(text) for text in texts())


def quotes() -> list[str]:
    """The texts that the headings of the troubleshooting page quote."""
    headings = re.findall(r"^### (.*)$", TROUBLE.read_text(encoding="utf-8"), re.MULTILINE)
    return [quote for heading in headings for quote in re.findall(r"`([^`]+)`", heading)]


def test_each_quoted_text_is_one_that_somebody_says() -> None:
    """A reader finds an entry by the text of the message, so the text has to be the message's."""
    known = words_of_aws() | frozenset(dir(builtins)) | ELSEWHERE

    assert [quote for quote in quotes() if quote not in known and not is_said(quote)] == []


@pytest.mark.parametrize("quote", ["model 'x' is nowhere on endpoint 'y'", "no capacity to proceed"])
def test_a_text_that_nobody_says_is_found(quote: str) -> None:
    """The check above can fail."""
    assert not is_said(quote)


def test_each_entry_has_a_cause_and_a_fix() -> None:
    """Whoever finds a symptom finds why, and what to do."""
    entries = re.split(r"^###? .*$", TROUBLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    filled = [entry for entry in entries[1:] if entry.strip()]

    assert len(filled) > 30
    for entry in filled:
        assert re.search(r"^- \*\*Cause\.\*\* .+?^- \*\*Fix\.\*\* ", entry, re.MULTILINE | re.DOTALL), entry


def outputs() -> frozenset[str]:
    """The names of all outputs of our stacks: CamelCase texts of the folders that make them."""
    return frozenset(text for text in texts() if re.fullmatch(r"([A-Z][a-z0-9]+){1,5}", text))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_outputs_that_a_page_names_exist(page: Path) -> None:
    """What is called an output of the stack is one."""
    named = re.findall(r"\boutputs?\s\(?`([A-Za-z]+)`", page.read_text(encoding="utf-8"))

    assert set(named) <= outputs()


def _keys(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _below(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _below(argument)


def sections() -> dict[str, list[type[BaseModel]]]:
    """The catalog's parts that have keys of their own, by their names; a model's parts too."""
    found: dict[str, list[type[BaseModel]]] = {}
    waiting: list[type[BaseModel]] = [Catalog]
    while waiting:
        for key, annotation in _keys(waiting.pop()).items():
            inner = list(_below(annotation))
            if inner and key not in found:
                found[key] = inner
                waiting += inner
    return found


def unknown_keys(page: Path) -> list[str]:
    """The `section.key` of a page whose section is the catalog's and has no such key."""
    parts = sections()
    wrong = []
    for line, span in code_spans(page):
        name = span.partition(":")[0]
        path = name.split(".")
        if not re.fullmatch(r"[a-zA-Z_-]+(\.[a-zA-Z_-]+)+(?<!\.yaml)", name) or path[0] not in parts:
            continue
        for section, key in itertools.pairwise(path):
            if section in parts and not any(key in _keys(model) for model in parts[section]):
                wrong.append(f"{line}: {span}")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_keys_of_the_catalog_that_a_page_names_exist(page: Path) -> None:
    """`storage.keep_generations` and its like can be written into a catalog."""
    assert unknown_keys(page) == []


def test_a_key_that_does_not_exist_is_found(tmp_path: Path) -> None:
    """The check above can fail, in a nested part too."""
    page = tmp_path / "page.md"
    page.write_text("`storage.prefix` `storage.nope` `monitoring.alarms.nope: 1` `models.yaml` `gpu.minWorkers`\n")

    assert unknown_keys(page) == ["1: storage.nope", "1: monitoring.alarms.nope: 1"]
