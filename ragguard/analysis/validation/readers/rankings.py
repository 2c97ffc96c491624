"""Rankings in a folder: judgements, runs, and the outcome of each ranking.

qrels…        TREC's `query 0 document grade`, or BEIR's `query-id corpus-id score` under a heading
NAME.run      TREC's `query Q0 document rank score name`; a system each
outcomes.jsonl   {"question_id": "…", "run": "NAME", "outcome": 2} or, with an "answer", what is to be graded
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragguard.analysis.validation.contexts import Context
from ragguard.analysis.validation.readers.contexts import outcome_of
from ragguard.analysis.validation.readers.fields import json_lines, lines_of
from ragguard.errors import InvalidInput
from ragguard.records import Passage

OUTCOMES = "outcomes.jsonl"
Grades = Mapping[str, Mapping[str, float]]
"""Query → document → grade."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a system's ranking for a question."""

    value: float | None = None
    answer: str | None = None
    references: tuple[str, ...] = ()


@dataclass(slots=True)
class Question:
    """The text, references and sub-questions of a query."""

    text: str
    references: tuple[str, ...] = ()
    sub_questions: tuple[str, ...] = ()


@dataclass(slots=True)
class Folder:
    """A folder of rankings, with its judgements and questions."""

    path: Path
    qrels: Grades
    questions: Mapping[str, Question] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """The text of each document, where there is a corpus."""

    def contexts(self, k: int) -> Iterator[Context]:
        """Yields the top `k` of every ranking as a context."""
        runs = run_files(self.path)
        if not runs:
            raise InvalidInput(
                str(self.path),
                "no *.run file",
                "a file a system, with lines of `query Q0 document rank score name`",
            )
        outcomes = read_outcomes(self.path / OUTCOMES)
        met = False
        for file in runs:
            found = read_run(file)
            # A system that found nothing for a query has no line for it, but may have an outcome.
            unlisted = {
                query: list[str]() for query, run in outcomes if run == file.stem and query not in found
            }
            for query, documents in (found | unlisted).items():
                if query in self.qrels:
                    met = True
                    yield self._context(file.stem, query, documents[:k], outcomes)
        if not met:
            raise InvalidInput(
                str(self.path),
                "no query in common",
                "runs and judgements of the same queries; compare their ids",
            )

    def _context(
        self, run: str, query: str, documents: Sequence[str], outcomes: Mapping[tuple[str, str], Outcome]
    ) -> Context:
        grades = self.qrels[query]
        known = self.questions.get(query) or Question(query)
        said = outcomes.get((query, run)) or Outcome()
        return Context(
            id=f"{run}/{query}",
            question_id=query,
            question=known.text,
            passages=tuple(Passage(self.texts.get(document, ""), document) for document in documents),
            references=said.references or known.references,
            relevance=tuple(max(0.0, grades.get(document, 0.0)) for document in documents),
            ideal=tuple(sorted((max(0.0, grade) for grade in grades.values()), reverse=True)),
            answer=said.answer,
            outcome=said.value,
            sub_questions=known.sub_questions,
        )


def run_files(path: Path) -> list[Path]:
    """Returns the files of rankings in a folder, one for each system."""
    return sorted(file for file in path.iterdir() if file.suffix == ".run")


def qrel_files(path: Path) -> list[Path]:
    """Returns the files of judgements in a folder, or in its folder `qrels`."""
    inner = path / "qrels"
    if inner.is_dir():
        return sorted(inner.glob("*.tsv"))
    return sorted(file for file in path.iterdir() if file.is_file() and "qrel" in file.name)


def read_qrels(files: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Returns the judgements of files of either kind."""
    found: dict[str, dict[str, float]] = {}
    for file in files:
        for number, line in lines_of(file):
            parts = line.split()
            if number == 1 and parts[0] in ("query-id", "query_id"):
                continue
            if len(parts) not in (3, 4):
                raise _wrong(file, number, line, "`query 0 document grade`, or `query document grade`")
            query, document = parts[0], parts[-2]
            grade = _number(file, number, line, parts[-1])
            if (known := found.setdefault(query, {}).setdefault(document, grade)) != grade:
                raise _wrong(file, number, line, f"one grade a document: it has {known:g} already")
    return found


def read_run(file: Path) -> dict[str, list[str]]:
    """Returns the ranking of documents for each query, by score as in trec_eval; the ranks in the file do not count."""
    found: dict[str, list[tuple[float, str]]] = {}
    for number, line in lines_of(file):
        parts = line.split()
        if len(parts) != 6:
            raise _wrong(file, number, line, "`query Q0 document rank score name`")
        found.setdefault(parts[0], []).append((_number(file, number, line, parts[4]), parts[2]))
    return {
        query: [document for _, document in sorted(ranking, reverse=True)] for query, ranking in found.items()
    }


def read_outcomes(path: Path) -> dict[tuple[str, str], Outcome]:
    """Returns the outcome of each ranking; empty where there is no such file."""
    if not path.exists():
        return {}
    return {
        (fields.text("question_id"), fields.text("run")): Outcome(
            outcome_of(fields), fields.text("answer", default="") or None, fields.texts("references")
        )
        for fields in json_lines(path)
    }


def _number(file: Path, number: int, line: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _wrong(file, number, line, f"a number in place of {text!r}") from error


def _wrong(file: Path, number: int, line: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{file}, line {number}", line.strip()[:60], allowed)
