"""Rankings in a folder of TREC or BEIR files: judgements, runs, questions, texts, and the outcome of each ranking.

qrels…        TREC's `query 0 document grade`, or BEIR's `query-id corpus-id score` under a heading
NAME.run      TREC's `query Q0 document rank score name`; a system each
outcomes.jsonl   {"question_id": "…", "run": "NAME", "outcome": 2} or, with an "answer", what is to be graded
topics.tsv    of TREC: `query<TAB>text`, where there is one
corpus.jsonl, queries.jsonl, qrels/*.tsv   of BEIR
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragguard.analysis.validation.contexts import OUTCOMES, Context
from ragguard.analysis.validation.fields import Fields, json_lines, lines_of
from ragguard.errors import InvalidInput
from ragguard.records import Passage

_OUTCOME_FILE = "outcomes.jsonl"
CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
"""The files by which a folder of BEIR is known."""
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
    runs = run_files(path)
    if not runs:
        raise InvalidInput(
            str(path), "no *.run file", "a file a system, with lines of `query Q0 document rank score name`"
        )
    outcomes = read_outcomes(path / _OUTCOME_FILE)
    met = False
    for file in runs:
        found = read_run(file)
        # A system that found nothing for a query has no line for it, but may have an outcome.
        unlisted = {query: list[str]() for query, run in outcomes if run == file.stem and query not in found}
        for query, ranking in (found | unlisted).items():
            if query not in qrels:
                continue
            met = True
            grades, documents = qrels[query], ranking[:k]
            known = questions.get(query) or Question(query)
            said = outcomes.get((query, file.stem)) or Outcome()
            yield Context(
                id=f"{file.stem}/{query}",
                question_id=query,
                question=known.text,
                passages=tuple(Passage((texts or {}).get(document, ""), document) for document in documents),
                references=said.references or known.references,
                relevance=tuple(max(0.0, grades.get(document, 0.0)) for document in documents),
                ideal=tuple(sorted((max(0.0, grade) for grade in grades.values()), reverse=True)),
                answer=said.answer,
                outcome=said.value,
                sub_questions=known.sub_questions,
            )
    if not met:
        raise InvalidInput(
            str(path), "no query in common", "runs and judgements of the same queries; compare their ids"
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
        raise _wrong(file, number, line, f"a number in place of {text!r}") from error


def _wrong(file: Path, number: int, line: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{file}, line {number}", line.strip()[:60], allowed)


def read_beir(path: Path, k: int) -> Iterator[Context]:
    """Yields the contexts of all systems in a BEIR folder, with the texts of their documents."""
    wanted = {
        document
        for file in run_files(path)
        for documents in read_run(file).values()
        for document in documents[:k]
    }
    questions = {
        fields.text("_id"): Question(fields.text("text"), fields.texts("references", "answers"))
        for fields in json_lines(path / QUERIES)
    }
    texts = dict[str, str]()
    for fields in json_lines(path / CORPUS):
        if (document := fields.text("_id")) in wanted:
            title, text = fields.text("title", default=""), fields.text("text", default="")
            texts[document] = f"{title}\n{text}".strip()
    yield from ranked_contexts(path, k, read_qrels(qrel_files(path)), questions, texts)


def read_trec(path: Path, k: int) -> Iterator[Context]:
    """Yields the contexts of all systems in a TREC folder, without texts: only rank measures can be computed."""
    questions: dict[str, Question] = {}
    if (topics := path / "topics.tsv").exists():
        for number, line in lines_of(topics):
            query, tab, text = line.strip().partition("\t")
            if not tab:
                raise _wrong(topics, number, line, "`query`, a tab and its text")
            questions[query] = Question(text.strip())
    yield from ranked_contexts(path, k, read_qrels(qrel_files(path)), questions)
