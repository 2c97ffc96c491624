"""The places where facts are decided: in how many files of the package and its integrations each rule stands.

A fact is known by the code that decides it, such as a comparison of a utility with a threshold or a second formula;
each sign is a kind of node of Python's syntax and a pattern for its text, as `ast.unparse` writes it. The table is part
of a test: a second place of a fact fails it. Where a fact is meant to stand in another file, change the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Sign(NamedTuple):
    """A piece of code that decides a fact."""

    kind: type[ast.AST] | tuple[type[ast.AST], ...]
    pattern: str
    """A pattern for the name of a function or a class, else for the text of the node."""


class Fact(NamedTuple):
    """A fact, by the signs of its place."""

    signs: tuple[Sign, ...]


FACTS: Mapping[str, Fact] = {
    "verdict of a passage": Fact((
        Sign(ast.Compare, r"\butility\)? (<|>|<=|>=) (threshold|CLEAR|MISLEADS|-?0?\.\d+)"),
        Sign(ast.arguments, r"threshold: float ?= ?-0?\.2\b"),
        Sign(ast.AnnAssign, r"^threshold: float ?= ?-0?\.2\b"),
    )),
    "K of a step": Fact((Sign(FUNCTION, r"^(places_of|k_of)$"), Sign(ast.BoolOp, r"^(step|retrieval)\.k or "))),
    "a step amended": Fact((Sign(FUNCTION, r"^applied_to$"), Sign(ast.Call, r"^replace\(step, .*event\."))),
    "which score counts": Fact((Sign(FUNCTION, r"^(ways_that_count|that_count|preferred|latest_scores)$"),)),
    "utility": Fact((Sign(ast.BinOp, r"^\(2(\.0)? \* .+ - 1(\.0)?\) \* \(1(\.0)? - .+\)$"),)),
    "settings": Fact((
        Sign((ast.arguments, ast.AnnAssign), r"\b(queue_bytes|max_open_runs|on_overflow): [^,=]+ ?= ?"),
    )),
    "names of documents": Fact((
        Sign((ast.Tuple, ast.List, ast.Set), r"'page_content'.*,|'source_documents'.*,"),
    )),
    "normalising of texts": Fact((Sign(ast.Call, r"^unicodedata\.normalize\("),)),
    "codec of a run": Fact((Sign(ast.Dict, r"'question': \w+\.question\b"), Sign(ast.ClassDef, r"^RecordType$"))),
    "entailment's stack": Fact((
        Sign(ast.ClassDef, r"^EntailRequest$|(?i:entail\w*(cache|budget|retry|batch))"),
        Sign(FUNCTION, r"^connected_entailer$"),
    )),
}  # fmt: skip

_SIGNS = [(name, sign) for name, fact in FACTS.items() for sign in fact.signs]


def places(root: Path) -> dict[str, list[str]]:
    """Returns the files of a checkout in which each fact is decided."""
    found: dict[str, list[str]] = {name: [] for name in FACTS}
    for folder in ("ragguard", "integrations"):
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for name in decided(tree):
                found[name].append(str(path.relative_to(root)))
    return found


def decided(tree: ast.AST) -> Iterator[str]:
    """Yields the facts that a module decides."""
    found = set()
    for node in ast.walk(tree):
        asked = [(name, sign) for name, sign in _SIGNS if isinstance(node, sign.kind)]
        text = text_of(node) if asked else ""
        found |= {name for name, sign in asked if re.search(sign.pattern, text)}
    yield from (name for name in FACTS if name in found)


def text_of(node: ast.AST) -> str:
    """Returns the name of a definition, the text of an expression or a declaration, and nothing for other nodes."""
    if isinstance(node, (*FUNCTION, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.expr | ast.arguments | ast.AnnAssign):
        return ast.unparse(node)
    return ""
