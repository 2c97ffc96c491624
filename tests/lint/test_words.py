"""What users read is plain English: habits that make a sentence hard to read at first are named here, and found.

Pages are read without code, tables that studies write, and comments. Of the code, every string of a message is read,
which is one of three words or more that is no docstring, and the help of commands.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragguard.cli.app import COMMANDS, function_of

ROOT = Path(__file__).parents[2]
HABITS = {
    r"\balone\b": "only, or by itself",
    r"\banew\b": "again",
    r"\btold\b": "say who says it: the model gets, the log says",
    r"\bof these\b": "name them",
    r"\b(is|are|was|were) said\b": "say who says it, or reports it",
    r"\b(at|in) hand\b": "say where it is",
    r"\b(at most|spend) so many\b": "give the number, or name it",
    r"(?:^|[.;|] )Where [^.;:|?]*, ": "If",
    r"; where [^.;|]*, ": "if",
    r"\bwhere (there (is|are|was)|it (has|is|can|needs|does|fails|did|gives)|they (are|have|were)|none (is|are|was)"
    r"|nothing (is|was)|one is|that is|no \w+ (is|was|has))\b": "if",
    r"\balso where\b": "even if",
    r"\bin place of\b": "instead of",
    r"\bat the least\b": "at least",
    r"\bas the case may be\b": "say both cases",
    r"\b(puts|put) (a|the) questions?\b": "asks",
    r"\bfailed for (good|now)\b": "failed and is not tried again, or will be tried again",
    r"\blet go unscored\b": "dropped without scores",
    r"\b(goes|go) on (where it was|from there)\b": "the same command continues",
    r"\bas far as words tell\b": "as far as words show",
    r"\banswered otherwise\b": "gave another answer",
    r"\b(is|are) in none\b": "is in no passage, or no hop",
    r"\b(stand|stands) in no (passage|step)\b": "is in no passage",
    r"\bless (the one|the ones|that|those) (of|without|after|before)\b": "minus",
}
"""A habit, as a pattern, and what to write."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts),
]
NOT_PROSE = re.compile(
    r"<!-- study: .*?<!-- /study -->|<!-- example -->.*?<!-- /example -->|<!--.*?-->"
    r"|^```.*?^```|`[^`\n]*`|\]\([^)\s]*\)",
    re.DOTALL | re.MULTILINE,
)
ALLOWED = ("stand alone", "stands alone", "left alone", "Δ likelihood alone", "ΔSePer alone", "adds alone")
"""Names of metrics, and phrases in which the word means what it usually does."""
CODE = [
    path
    for folder in ("ragguard", "integrations")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"world", "exam", "nano"} & set(path.parts) and path.name != "prompts.py"
]
"""Without the made-up world, the cases of the examination and the prompts, whose texts are for models."""


def habits_in(text: str) -> Iterator[tuple[str, str]]:
    """Yields each habit of a text: the words around it, and what to write."""
    for pattern, better in HABITS.items():
        for match in re.finditer(pattern, text, re.MULTILINE):
            words = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
            if not any(phrase in words for phrase in ALLOWED):
                yield words, better


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_english(page):
    text = NOT_PROSE.sub("x", page.read_text(encoding="utf-8"))
    assert not list(habits_in(re.sub(r"\n(?!\n|[#|>-])", " ", text)))


def messages(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yields the texts of a module that a user may read."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        )
        if is_text and len(node.value.split()) > 2 and "tell told" not in node.value:  # the irregular verbs
            yield node


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_message_is_plain_english(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {(text.lineno, *habit) for text in messages(tree) for habit in habits_in(text.value)}
    assert not sorted(found)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_plain_english(command):
    assert not list(habits_in(inspect.getdoc(function_of(command)) or ""))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "ragguard").rglob("page_files/*.*")), ids=lambda path: path.name
)
def test_a_text_of_the_pages_is_plain_english(path):
    text = re.sub(r"//[^\n]*|/\*.*?\*/|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not list(habits_in(text))


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("It knows its world alone.", "only, or by itself"),
        ("Where the engine is down, all is kept.", "If"),
        ("the judge is asked where there is one", "if"),
    ],
)
def test_a_habit_is_found(text, better):
    assert better in {found for _, found in habits_in(text)}


@pytest.mark.parametrize(
    "text", ["Where the results go.", "The words stand alone.", "### Where the answer stands"]
)
def test_plain_words_are_left(text):
    assert not list(habits_in(text))
