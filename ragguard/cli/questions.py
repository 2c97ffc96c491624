"""`ragguard questions FROM`: sub-questions from reference reports, in a file that runs can name.

They are made as CRUX makes them: of what an ideal answer answers, and not only of what a question asks (Ju et al. 2025,
section 3.2). A judge writes the questions that a report answers, and rewrites the report's documents as passages that
are understood on their own. Kept are the sub-questions that a passage answers; each passage is graded by the best of
its ratings. The result is a run without steps: `sub_questions` and `pool` as a run file has them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ragguard.cli.scoring_options import EngineAddress, PromptSetName
from ragguard.cli.terminal import say
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import PromptSet, Task, load_prompts
from ragguard.errors import EngineProtocolError, InvalidInput, LowLabelMass, PromptTooLong, ScoringError
from ragguard.facts.run_facts import ANSWERS
from ragguard.records import Passage, Run
from ragguard.runtime.arguments import check_output
from ragguard.scorers.asker import Asker, Models
from ragguard.scorers.coverage import Ratings
from ragguard.scorers.probes import read_lines, read_sub_questions
from ragguard.scorers.question import SampleQuestion, answered
from ragguard.storage.files.jsonl import json_lines
from ragguard.storage.files.runfile import write_runs


def run(
    reports: Annotated[
        Path,
        typer.Argument(
            metavar="FROM",
            help="JSON lines: `question`, `report` (an ideal answer), and `documents` (texts it was written from).",
        ),
    ],
    engine: EngineAddress = "auto",
    prompts: PromptSetName = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: a run file without steps.")
    ] = Path("questions.jsonl"),
) -> None:
    """Write the sub-questions that reference reports answer, and their passages with grades.

    Use them in runs: `{run.question: run.sub_questions for run in ragguard.read_runs("questions.jsonl")}`.
    Exit code 0: written. 1: written, but some reports gave none. 2: none written.
    """
    if not out.name.endswith((".jsonl", ".jsonl.gz")):  # before the model is asked
        allowed = "a name that ends in .jsonl or .jsonl.gz"
        raise InvalidInput("--out", str(out), allowed)
    check_output("--out", out)
    given = list(read_reports(reports))
    made, problems = asyncio.run(_made(given, engine, prompts))
    for problem in problems:
        say(problem, error=True)
    if not made:
        raise InvalidInput(str(reports), f"{len(given)} reports", "at least one that gives sub-questions")
    write_runs(made, out)
    asked = sum(len(one.sub_questions or ()) for one in made)
    passages = sum(len(one.pool or ()) for one in made)
    say(
        f"{asked} sub-questions and {passages} passages of {len(made)} reports written to {out}: "
        f"rg.run(question, sub_questions={str(out)!r})"
    )
    if problems:
        raise typer.Exit(1)


LONGEST = 1024
"""The most words of a piece of a document that is rewritten at once."""


@dataclass(frozen=True, slots=True)
class ReferenceReport:
    """An ideal answer to a question, with the documents that it was written from."""

    question: str
    report: str
    documents: tuple[str, ...] = ()
    """Empty: the paragraphs of the report are its passages, as they stand."""


def read_reports(path: Path) -> Iterator[ReferenceReport]:
    """Yields the reports of a file of JSON lines: `question`, `report`, and `documents` where there are any."""
    for fields in json_lines(path):
        yield ReferenceReport(fields.text("question"), fields.text("report"), fields.texts("documents"))


async def _made(
    reports: Sequence[ReferenceReport], engine: str, prompts: str | None
) -> tuple[list[Run], list[str]]:
    """Returns the runs that the reports give, and why others give none."""
    made: list[Run] = []
    problems: list[str] = []
    async with aclosing(connect(engine)) as judge:
        chosen = load_prompts(prompts or (await judge.info()).prompts)
        for one in reports:
            try:
                made.append(await questions_of(one, judge, chosen))
            except (ScoringError, LowLabelMass, PromptTooLong, EngineProtocolError) as error:
                problems.append(f"{one.question}: {error}")
    return made, problems


async def questions_of(report: ReferenceReport, judge: Engine, prompts: PromptSet) -> Run:
    """Returns a run with the report's question, the sub-questions that its passages answer, and the passages.

    Raises ScoringError where no passage answers any of them.
    """
    asker = Asker(Models(judge, judge))
    (run,) = await asker.attend([partial(_run_of, report, asker, prompts)])
    return run


async def _run_of(report: ReferenceReport, ask: Asker, prompts: PromptSet) -> Run:
    def question(task: Task, **fields: Any) -> SampleQuestion:
        most = prompts.template(task).max_tokens
        return SampleQuestion(prompts.render(task, **fields), 1, most, 0.0, seed=0, who="judge")

    first, *rest = await ask([
        question("report_questions", question=report.question, report=report.report, cuttable=("report",)),
        *(question("self_contained", document=piece) for one in report.documents for piece in _pieces(one)),
    ])  # fmt: skip
    asked = read_sub_questions(answered(first))
    written = [text for answer in rest for text in read_lines(answered(answer))]
    passages = list(dict.fromkeys(written or re.split(r"\n\s*\n", report.report.strip())))
    ratings = Ratings(tuple(asked))
    await ratings.learn(passages, prompts, ask)
    table = ratings.table(passages)
    kept = table.max(axis=0) >= ANSWERS
    if not kept.any():
        raise ScoringError(
            f"no passage answers any of the {len(asked)} sub-questions that the judge wrote for "
            f"{report.question!r}: give the documents that the report was written from, or another judge"
        )
    grades = table[:, kept].max(axis=1).clip(1)
    return Run(
        question=report.question, references=[report.report],
        sub_questions=[text for text, keep in zip(asked, kept, strict=True) if keep],
        pool=[Passage(text, grade=int(grade)) for text, grade in zip(passages, grades, strict=True)],
    )  # fmt: skip


def _pieces(document: str) -> list[str]:
    """Returns a document in pieces of at most `LONGEST` words, none of which ends inside a word."""
    words = re.findall(r"\S+\s*", document)
    return ["".join(words[at : at + LONGEST]).strip() for at in range(0, len(words), LONGEST)]
