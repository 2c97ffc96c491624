"""The columns of a table: which one holds the question, the contexts, the answer, the reference, and the run of a row.

Knows the names that ragas, DeepEval and plain tables have. Cells may hold lists as such, as JSON, as Python writes
them, or as one text with a separator.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import shlex
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragguard.capture.splitters import passage_of_json
from ragguard.errors import InvalidInput
from ragguard.records import Passage, Run
from ragguard.runtime.arguments import one_of
from ragguard.schema import Data, data_of
from ragguard.storage.files.runfile import run_of_data
from ragguard.text.plain import plain

NAMES: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "user_input", "input", "query"),
    "contexts": ("contexts", "retrieved_contexts", "retrieval_context", "passages", "documents", "context"),
    "answer": ("answer", "response", "actual_output", "generated_answer", "output"),
    "reference": (
        "reference", "references", "ground_truth", "ground_truths", "expected_output", "reference_answer",
    ),
    "id": ("id", "run_id", "question_id"),
    "context_ids": ("context_ids", "retrieved_context_ids", "retrieved_ids"),
}  # fmt: skip
"""The parts of a run, each with the names of columns that hold it, the more telling first."""
NEEDED = ("question", "contexts")
_LIKE: Mapping[str, re.Pattern[str]] = {
    what: re.compile(words, re.IGNORECASE)
    for what, words in (
        ("reference", "reference|truth|gold|expect|correct|target|label"),
        ("answer", "answer|response|output|gave|given|reply|predict|generat|complet"),
        ("contexts", "context|ctx|passage|doc|chunk|found|retriev|source"),
        ("question", "question|query|prompt|^q$"),
    )
}
"""The words in a column's name that suggest what it holds, for the command in an error; the first that fit count."""
_SEPARATORS = ("|", ";", "\n\n")
"""The texts that may stand between contexts in one cell; they are only named, since a text may hold them as well."""
_NOTE = re.compile(r"""\[[^\["'{\]]*\]\s*[^\s\]]""")
"""A note in brackets with which a text may begin, as in "[1] Oslo is …"; no list begins so."""


@dataclass(slots=True)
class Columns:
    """The columns of one table that hold something of a run, by what they hold."""

    names: Mapping[str, str]
    separator: str = ""
    """The text between contexts in a cell without a list; "": such a cell is one context."""
    remarks: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        header: Sequence[str],
        given: Mapping[str, str],
        separator: str = "",
        *,
        path: str = "FILE",
        first: Mapping[str, Any] | None = None,
        remarks: Counter[str] | None = None,
    ) -> Columns:
        """Returns the columns of a table; raises InvalidInput with the command that would work if one that is needed
        is missing or stands there twice.

        Args:
            header: The names of all columns.
            given: Columns by what they hold, as the user named them.
            separator: What stands between contexts in a cell.
            path: The table, for errors.
            first: The first row, by which the command in the error is made.
            remarks: Gets what was read otherwise than a user may expect.
        """
        for what, name in given.items():
            one_of("--map", what, [*NAMES])
            if name not in header:
                raise InvalidInput(f"--map {what}", name, f"a column of {path}: {_listed(header)}")
        names = {**known_columns(header), **given}
        if twice := next((name for name in names.values() if header.count(name) > 1), None):
            raise InvalidInput(f"{path}, column", twice, "a name that only one column has")
        if missing := [what for what in NEEDED if what not in names]:
            free = [name for name in header if name not in names.values()]
            guesses = {what: f"{what.upper()}_COLUMN" for what in missing} | _guesses(
                [what for what in _LIKE if what not in names], free, first or {}
            )
            mapped = " ".join(f"--map {what}={shlex.quote(name)}" for what, name in guesses.items())
            separated = f" --separator {shlex.quote(separator)}" if separator else ""
            raise InvalidInput(
                f"{path}, columns",
                _listed(header),
                f"a name for {' and for '.join(missing)}, such as {', '.join(NAMES[what][0] for what in missing)}, or: "
                f"`ragguard score {shlex.quote(path)} {mapped}{separated}`",
            )
        remarks = Counter() if remarks is None else remarks
        _remark_on_unread(header, names, given, remarks)
        return cls(names, separator, remarks)

    def run(self, row: Mapping[str, Any]) -> Run:
        """Returns the run of a row; raises InvalidInput for the first cell that cannot be right."""
        cells = {what: row.get(name) for what, name in self.names.items()}
        question = cells["question"]
        if not isinstance(question, str):
            what = "a text; conversations are read from traces" if isinstance(question, list) else "a text"
            raise InvalidInput(self.names["question"], question, what)
        passages = self._passages(cells["contexts"], cells.get("context_ids"))
        data: Data = {"question": question, "steps": [{"passages": [data_of(one) for one in passages]}]}
        if references := self._texts("reference", cells.get("reference")):
            data["references"] = references
        if answers := self._texts("answer", cells.get("answer")):
            data["answer"] = "\n".join(answers)
        if id := self._texts("id", cells.get("id")):
            data["id"] = id[0]
        rest = {str(name): value for name, value in row.items() if name not in self.names.values()}
        if kept := {name: value for name, value in rest.items() if not is_empty(value)}:
            data["metadata"] = plain(kept)
        return run_of_data(data)

    def _passages(self, cell: Any, ids: Any) -> list[Passage]:
        name = self.names["contexts"]
        passages = []
        for at, item in enumerate(self._items(cell)):
            if not isinstance(item, str | Mapping):
                raise InvalidInput(f"{name}[{at}]", item, "a text, or an object with one")
            passages.append(passage_of_json(item))
        if len(known := items_of(ids)) == len(passages):
            for passage, id in zip(passages, known, strict=True):
                passage.id = passage.id or str(id)
        return passages

    def _items(self, cell: Any) -> list[Any]:
        items = items_of(cell)
        if len(items) == 1 and items[0] is cell and isinstance(cell, str):
            if self.separator:
                return [part for part in map(str.strip, cell.split(self.separator)) if part]
            if cell.lstrip()[:1] == "[" and not _NOTE.match(cell.lstrip()):
                raise InvalidInput(
                    self.names["contexts"], cell, 'a list in JSON, such as ["a", "b"], or a text'
                )
            for separator in _SEPARATORS:
                if separator in cell.strip():
                    self.remarks[_not_split(self.names["contexts"], separator)] += 1
                    break
        return items

    def _texts(self, what: str, cell: Any) -> list[str]:
        """Returns the texts of a cell; a number becomes a text."""
        items = items_of(cell) if what == "reference" else [] if is_empty(cell) else [cell]
        texts = []
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                raise InvalidInput(self.names[what], item, "a text")
            whole = isinstance(item, float) and item.is_integer()
            texts.append(str(int(item)) if whole else str(item))
        return [text for text in texts if text.strip()]


def _not_split(name: str, separator: str) -> str:
    """Returns the remark on a cell that is one context although it has a separator."""
    blank = not separator.strip()
    shown, option = ("an empty line", r"$'\n\n'") if blank else (repr(separator), shlex.quote(separator))
    return f"a cell of {name} without a list is one passage, though it has {shown}; --separator {option} splits it"


def _remark_on_unread(
    header: Sequence[str], names: Mapping[str, str], given: Mapping[str, str], remarks: Counter[str]
) -> None:
    """Says which columns are read for nothing, and of two for one part of a run which one is read."""
    for what, known in NAMES.items():
        others = [name for name in header if _spelled(name) in known and name not in names.values()]
        if others and what not in given:
            ways = " or ".join(f"--map {what}={shlex.quote(name)}" for name in others)
            remarks[
                f"{what} is read from {names[what]}, not from {', '.join(others)}; {ways} changes that"
            ] += 1
    if unread := [name for name in header if name not in names.values()]:
        remarks[f"columns not used, only kept as metadata: {_listed(unread)}"] += 1


def known_columns(header: Iterable[str]) -> dict[str, str]:
    """Returns the columns of a table by what they hold, as far as their names say it."""
    spelled: dict[str, str] = {}
    for name in header:
        spelled.setdefault(_spelled(name), name)
    found = {}
    for what, names in NAMES.items():
        for name in names:
            if name in spelled:
                found[what] = spelled[name]
                break
    return found


def _spelled(name: str) -> str:
    """Returns the name of a column as NAMES has it."""
    return name.strip().lower().replace(" ", "_")


def is_empty(cell: Any) -> bool:
    """True for a cell that holds nothing: None, NaN, or a text of spaces."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def items_of(cell: Any) -> list[Any]:
    """Returns the items of a cell: of a list, or of a text that is one in JSON, or as Python or NumPy writes it; any
    other cell is its own one item."""
    if is_empty(cell):
        return []
    if hasattr(cell, "tolist"):  # an array of NumPy
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return [item for item in cell if not is_empty(item)]
    if isinstance(cell, str) and cell.lstrip()[:1] == "[" and cell.rstrip()[-1:] == "]":
        for read in (json.loads, _python_list):
            try:
                items = read(cell)
            except (ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
                continue
            if isinstance(items, list):
                return [item for item in items if not is_empty(item)]
    return [cell]


def _python_list(text: str) -> Any:
    """Returns the list that Python's repr shows; NumPy's has no commas, so that Python would join its texts."""
    items = ast.literal_eval(text.strip())
    if isinstance(items, list) and all(isinstance(item, str) for item in items):
        tokens = tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        texts = [token.string for token in tokens if token.type == tokenize.STRING]
        return [ast.literal_eval(one) for one in texts]
    return items


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _guesses(wanted: Sequence[str], free: Sequence[str], first: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns that the user may have meant: by their names; else for contexts the first one with a list,
    for a question and then for contexts any other one."""
    lists = {name for name in free if len(items_of(first.get(name))) > 1}
    found: dict[str, str] = {}

    def take(what: str, columns: Iterable[str]) -> None:
        column = next((name for name in columns if name not in found.values()), None)
        if what in wanted and what not in found and column is not None:
            found[what] = column

    take("contexts", [name for name in free if name in lists and _LIKE["contexts"].search(name)])
    take("contexts", [name for name in free if name in lists])
    for what, like in _LIKE.items():
        take(what, [name for name in free if name not in lists and like.search(name)])
    for what in NEEDED:
        take(what, [name for name in free if name not in lists])
    return {what: found[what] for what in NAMES if what in found}
