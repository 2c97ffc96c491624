"""The blocks of code on a page, as a reader finds them.

A block runs as it stands, behind the blocks before it, in one folder that is empty at first. Two comments in a page's
source, on the line before a block, say otherwise:

    <!-- run with: runs.jsonl; servers -->    files that the reader has, and servers for which the tests have their own
    <!-- not run: it listens until Ctrl-C -->

The word `warns` in the first says that the block warns on purpose; no other block may warn. A `text` block right behind
a block that runs is what that block prints.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md"))
      if not {"decisions", "studies", "_build"} & set(page.parts)),
]  # fmt: skip
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>run with|not run): (?P<why>[^\n]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```\n"
    r"(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
RUN = ("python", "sh", "bash")
INSTALLED = re.compile(r"pip install '?\./ragguard\[([\w,-]+)\]")


class Block(NamedTuple):
    """One block of a page."""

    language: str
    text: str
    mark: str | None
    why: str
    shown: str | None
    """The lines that the block prints, if the page shows it."""

    @property
    def runs(self) -> bool:
        """True if the block is run."""
        return self.language in RUN and self.mark != "not run"


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of a page in their order."""
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        block = Block(match["language"], match["text"], match["mark"], match["why"] or "", match["shown"])
        found.append(block if block.runs else block._replace(shown=None))
    return found


def extras_of(page: Path) -> set[str]:
    """Returns the extras that the page has its reader install."""
    return {
        extra for names in INSTALLED.findall(page.read_text(encoding="utf-8")) for extra in names.split(",")
    }


def modules_of(block: Block) -> set[str]:
    """Returns the packages that a block of Python imports."""
    names = set()
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def installed_with(extras: set[str]) -> set[str]:
    """Returns the packages that can be imported once ragguard is installed with these extras."""
    distributions = _closure("ragguard", frozenset(extras), set())
    there = {
        name
        for name, owners in packages_distributions().items()
        if {_plain(one) for one in owners} & distributions
    }
    own = {path.name for path in (ROOT / "integrations").iterdir()} | {"ragguard"}
    return there | own | set(sys.stdlib_module_names)


def _closure(name: str, extras: frozenset[str], seen: set[str]) -> set[str]:
    """Returns a distribution and all that it requires with some extras."""
    for line in _required(name):
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            below = _plain(requirement.name)
            if below not in seen or requirement.extras:
                seen.add(below)
                _closure(below, frozenset(requirement.extras), seen)
    return seen | {_plain(name)}


def _required(name: str) -> Iterator[str]:
    try:
        yield from requires(name) or ()
    except ModuleNotFoundError:
        return


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
