"""`ragguard questions FROM`: sub-questions from reference reports, in a file that runs can name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragguard.cli.options import EngineAddress, PromptSetName
from ragguard.cli.terminal import notes, say
from ragguard.errors import InvalidInput
from ragguard.runtime.arguments import output_path

if TYPE_CHECKING:
    from ragguard.analysis.report_questions import ReferenceReport
    from ragguard.records import Run


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
    out: Annotated[Path, typer.Option("--out", "-o", help="Where they go: a run file without steps.")] = Path(
        "questions.jsonl"
    ),
) -> None:
    """Write the sub-questions that reference reports answer, and their passages with grades.

    A run names the file in the place of its sub-questions: rg.run(question, sub_questions="questions.jsonl"), or the
    field `sub_questions` of a run file. Exit code 0: written. 1: written, but some reports gave none. 2: none written.
    """
    from ragguard.analysis.report_questions import read_reports
    from ragguard.storage.files.runfile import write_runs

    if not out.name.endswith((".jsonl", ".jsonl.gz")):  # before the model is asked
        raise InvalidInput(
            "--out", str(out), "a name that ends in .jsonl or .jsonl.gz, as runs name the file"
        )
    output_path("--out", out)
    given = list(read_reports(reports))
    made, problems = asyncio.run(_made(given, engine, prompts))
    for problem in problems:
        notes().print(problem, markup=False)
    if not made:
        raise InvalidInput(str(reports), f"{len(given)} reports", "at least one that gives sub-questions")
    write_runs(made, out)
    asked, passages = (
        sum(len(one.sub_questions or ()) for one in made),
        sum(len(one.pool or ()) for one in made),
    )
    say(
        f"{asked} sub-questions and {passages} passages of {len(made)} reports written to {out}: "
        f"rg.run(question, sub_questions={str(out)!r})"
    )
    if problems:
        raise typer.Exit(1)


async def _made(
    reports: Sequence[ReferenceReport], engine: str, prompts: str | None
) -> tuple[list[Run], list[str]]:
    """Returns the runs that the reports give, and why others give none."""
    from ragguard.analysis.report_questions import questions_of
    from ragguard.engines.connect import connect
    from ragguard.engines.prompts import load_prompts
    from ragguard.errors import EngineProtocolError, LowLabelMass, PromptTooLong, ScoringError

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
