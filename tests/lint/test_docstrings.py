"""Docstrings stand alone: each begins with a verb or a noun phrase, and no file is too long to be read at once."""

import ast
import re
from pathlib import Path

import pytest

from ragguard.cli.app import ELSEWHERE

ROOT = Path(__file__).parents[2]
FOLDERS = ("ragguard", "integrations", "studies", "training", "benchmarks", "tests/support")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
LONGEST = 420
"""The most lines of a file that users run or that makes what they run, with no exceptions."""
MEASURED = [path for path in FILES if path.relative_to(ROOT).parts[0] not in ("benchmarks", "tests")]
NO_BEGINNING = set("""
    after again also and as at because before between but by for from here however if in is it its not of on only or
    over some so such that then there these they this those to under until was what whatever when where whether which
    whichever while whoever why with without
""".split())  # fmt: skip
"""Words that begin a clause, a question or a sentence about another one: no noun phrase and no verb."""
NOUN_PHRASES = set("a all an both each every false how no the three true two".split())


def docstrings(tree):
    """Yields each docstring, attributes' included, with the node that it describes; None for an attribute."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for number, statement in enumerate(body if isinstance(body, list) else ()):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                owner = node if number == 0 and not isinstance(node, ast.If | ast.With) else None
                yield owner, statement.lineno, in_one_line(statement.value.value)


def in_one_line(text):
    return " ".join(text.split())


def first_word(text):
    return re.match(r"[\w'’-]*", text)[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_docstring_begins_with_a_verb_or_a_noun_phrase(path):
    for owner, line, text in docstrings(ast.parse(path.read_text("utf-8"))):
        where, word = f"{path.name}:{line}: {text[:60]}", first_word(text)
        assert word.lower() not in NO_BEGINNING, where
        assert not re.split(r"(?<=[.:?!])\s", text)[0].endswith("?"), where
        if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and not is_command(path, owner):
            assert re.fullmatch("[A-Z][a-z-]*s", word) or word.lower() in NOUN_PHRASES, where


def is_command(path, function):
    """A command's docstring is its help, which speaks to the user: "Compare two sets of scored runs"."""
    return path.parent.name == "cli" and function.name in {"run", *(name for _, name in ELSEWHERE.values())}


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_a_reader_can_keep_in_mind(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST


def test_no_test_imports_another_test():
    """It would run as a second module of its own; what tests share is in tests/support."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(re.search(r"(^|\.)test_", name) for name in named), path
