"""The commands of README and docs run in bash: each page in one shell, its blocks in their order, as written.

A block marked `run` is run, `file` is written into the working folder, `catalog` is put into the catalog. Beside the
page's own words there is only an environment that points at the embedded AWS, and that answers yes where `cdk` asks.
`make examples` types in all pages, `make test` README and one more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from emulation import QUICK
from fakes.pages import PROJECT, Block, blocks, pages

from cohost.deploy import local_aws as local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

README = PROJECT / "README.md"
# The translations of README have the same blocks, which a test of theirs holds.
RUN = [page for page in pages() if not page.name.startswith("README") and any(b.kind == "run" for b in blocks(page))]
FEW = ("cost",)
ANSWERS = {"CI": "true", "CDK_REQUIRE_APPROVAL": "never", "CDK_FORCE": "true", **QUICK}
SHOWN_CHARACTERS = 6000
BASH = shutil.which("bash") or "/bin/bash"
_PUT_INTO_CATALOG = (
    "import os, pages, pathlib, sys; pages.write_into(pathlib.Path(os.environ['COHOST_CATALOG']), sys.stdin.read())"
)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """Return a copy of the project's folder, in which blocks may write files and change catalogs."""
    for path in PROJECT.iterdir():
        if not path.name.startswith(".") and path.name not in {"cdk.out", "dist", "model_configs", "site"}:
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(PROJECT / "model_configs", tmp_path / "model_configs")
    return tmp_path


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Return the environment of one emulator for all pages that start none; cdk can deploy there."""
    folder = tmp_path_factory.mktemp("documents")
    catalog = PROJECT / "model_configs" / "offline.yaml"
    environment = local.start(port=0, state=folder / "state", catalog=catalog).environment()
    try:
        # From a folder without an app, so that nothing is synthesised for it.
        type_in_text("cdk bootstrap aws://123456789012/us-east-1", folder, environment)
        yield environment
    finally:
        local.stop(folder / "state")


def script(page: Path) -> str:
    """Join a page's blocks into one bash script that stops at the first failed command and names its block."""
    return "\n".join(["set -euo pipefail", *map(_part, blocks(page))])


def _part(block: Block) -> str:
    there = f"echo '== {block}' >&2"
    document = f"<<'END-OF-BLOCK'\n{block.text}END-OF-BLOCK"
    match block.kind, block.language:
        case "run", "python":
            return f"{there}\npython - {document}"
        case "run", _:
            return f"{there}\n{block.text}"
        case "file", _:
            return f"cat > '{block.name}' {document}"
        case "catalog", _:
            return f'{there}\nPYTHONPATH="$FAKES" python -c "{_PUT_INTO_CATALOG}" {document}'
    return ""


def type_in(page: Path, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a page's blocks."""
    type_in_text(script(page), folder, environment)


def type_in_text(text: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a bash script; a failed command fails the test with the end of its output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), str(PROJECT / "node_modules/.bin"), os.environ["PATH"]])
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "COHOST_"))}
    done = subprocess.run(
        [BASH, "-c", text],
        cwd=folder,
        env={**own, **ANSWERS, "PATH": path, "FAKES": str(PROJECT / "tests/fakes"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout[-SHOWN_CHARACTERS:]}"


def test_readme_starts_deploys_calls_and_stops(workplace: Path) -> None:
    """The commands of the README work for a user without an account."""
    state = workplace / "state"
    try:
        type_in(README, workplace, {"COHOST_STATE": str(state), "COHOST_PORT": "0"})
        assert local.find(state) is None
    finally:
        local.stop(state)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=() if page.stem in FEW else pytest.mark.exhaustive) for page in RUN],
)
def test_page_works_as_written(page: Path, workplace: Path, aws: Mapping[str, str]) -> None:
    """The commands of a page work in the order in which the page has them."""
    catalog = workplace / "model_configs" / "offline.yaml"

    type_in(page, workplace, {**aws, "COHOST_CATALOG": str(catalog)})


def test_the_few_pages_are_there() -> None:
    """The pages that `make test` runs exist, because otherwise `make test` would run none."""
    assert {page.stem for page in RUN} >= set(FEW)


def test_a_page_that_is_wrong_fails(tmp_path: Path) -> None:
    """A page fails its test if a command fails or a part of a catalog is invalid."""
    for text in ("<!-- run -->\n```\nfalse\ntrue\n```\n", "<!-- catalog -->\n```yaml\n- 1\n```\n"):
        page = tmp_path / "page.md"
        page.write_text(text)
        (tmp_path / "catalog.yaml").write_text("endpoint: {}\n")
        with pytest.raises(AssertionError, match="ended with 1"):
            type_in(page, tmp_path, {"COHOST_CATALOG": str(tmp_path / "catalog.yaml")})
