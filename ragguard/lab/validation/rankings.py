"""Rankings in a folder of TREC or BEIR files: judgements, runs, questions, texts, and the outcome of each ranking.

qrels…, qrels/*.tsv   TREC's `query 0 document grade`, or BEIR's `query-id corpus-id score` under a heading
NAME.run              TREC's `query Q0 document rank score name`; a system each
queries.jsonl, corpus.jsonl   the questions and the texts of BEIR; without them only rank measures can be computed
outcomes.jsonl        {"question_id": "…", "run": "NAME", "outcome": 2} or, with an "answer", what is to be graded
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragguard.errors import InvalidInput
from ragguard.lab.validation.contexts import OUTCOMES, Context
from ragguard.records import Passage
from ragguard.storage.files.jsonl import Fields, json_lines, lines_of

Grades = Mapping[str, Mapping[str, float]]
"""Query → document → grade."""


@dataclass(slots=True)
class Question:
    """The text, references and sub-questions of a query."""

    text: str
    references: tuple[str, ...] = ()
    sub_questions: tuple[str, ...] = ()


def read_rankings(path: Path, k: int) -> Iterator[Context]:
    """Yields the top `k` of every ranking in a folder as a context."""
    questions: dict[str, Question] = {}
    if (queries := path / "queries.jsonl").exists():
        for fields in json_lines(queries):
            references = fields.texts("references", "answers")
            questions[fields.text("_id")] = Question(fields.text("text"), references)
    texts: dict[str, str] = {}
    # Without the questions an engine has nothing to read the texts for.
    if questions and (corpus := path / "corpus.jsonl").exists():
        tops = (documents[:k] for file in run_files(path) for documents in read_run(file).values())
        wanted = {document for top in tops for document in top}
        for fields in json_lines(corpus):
            if (document := fields.text("_id")) in wanted:
                title, text = fields.text("title", default=""), fields.text("text", default="")
                texts[document] = f"{title}\n{text}".strip()
    yield from ranked_contexts(path, k, read_qrels(qrel_files(path)), questions, texts)


def ranked_contexts(
    path: Path,
    k: int,
    qrels: Grades,
    questions: Mapping[str, Question],
    texts: Mapping[str, str] | None = None,
) -> Iterator[Context]:
    """Yields the top `k` of every ranking in a folder as a context.

    Args:
        path: The folder.
        k: How many passages a context takes.
        qrels: The judgements.
        questions: The queries, by their ids.
        texts: The text of each document, where there is a corpus.
    """
    said = path / "outcomes.jsonl"
    lines = json_lines(said) if said.exists() else iter(())
    outcomes = {(fields.text("question_id"), fields.text("run")): fields for fields in lines}
    for file in run_files(path):
        found = read_run(file)
        # A system that found nothing for a query has no line for it, but may have an outcome.
        unlisted = {query: list[str]() for query, run in outcomes if run == file.stem and query not in found}
        for query, ranking in (found | unlisted).items():
            if query not in qrels:
                continue
            grades, documents = qrels[query], ranking[:k]
            known = questions.get(query) or Question(query)
            outcome = outcomes.get((query, file.stem)) or Fields({}, "")
            yield Context(
                id=f"{file.stem}/{query}",
                question_id=query,
                question=known.text,
                passages=tuple(Passage((texts or {}).get(document, ""), document) for document in documents),
                references=outcome.texts("references") or known.references,
                relevance=tuple(max(0.0, grades.get(document, 0.0)) for document in documents),
                ideal=tuple(sorted((max(0.0, grade) for grade in grades.values()), reverse=True)),
                answer=outcome.text("answer", default="") or None,
                outcome=outcome_of(outcome),
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


def outcome_of(fields: Fields) -> float | None:
    """Returns the outcome as a number: a number itself, or one of the words of `OUTCOMES`."""
    value = fields.data.get("outcome")
    if not isinstance(value, str):
        return fields.number("outcome")
    for verdict, number in OUTCOMES.items():
        if verdict == value:
            return float(number)
    raise fields.wrong("outcome", value, f"a number, or one of {', '.join(OUTCOMES)}")


def _number(file: Path, number: int, line: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _wrong(file, number, line, f"a number instead of {text!r}") from error


def _wrong(file: Path, number: int, line: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{file}, line {number}", line.strip()[:60], allowed)
