"""`ragguard doctor ENGINE --exam`: examines what a model can tell, shows its figures, and keeps them for scoring."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from ragguard.cli.terminal import notes, progress_bar, say
from ragguard.errors import EngineError, EngineRejected, shown_apart
from ragguard.text.secret_filter import without_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from ragguard.scorers.exam.record import ExamRecord


def show_exam(
    engine: str, *, model: str | None, timeout_s: float, prompts: str | None, as_json: bool
) -> None:
    """Examines an engine, shows its figures and keeps them. Exits with 1 where it failed in something.

    A stopped examination goes on where it was when it is started again.
    """
    from ragguard.scorers.exam.record import answers_file, keep_record

    answers = answers_file(f"{engine} {model or ''}")
    try:
        record, path = asyncio.run(_examined(engine, model, timeout_s, prompts, answers, quiet=as_json))
    except EngineError as error:
        say(f"{without_secrets(engine)}: not examined\n{type(error).__name__}: {error}", error=True)
        raise typer.Exit(1) from error
    kept = keep_record(record, path)
    if kept:
        answers.unlink(missing_ok=True)
    if as_json:
        say(json.dumps(asdict(record) | {"failed": record.failed, "kept": kept}, indent=2))
    else:
        _show(record)
        say(
            f"kept in {path}"
            if kept
            else f"not kept: {path.parent} cannot be written (RAGGUARD_EXAMS names another)"
        )
    if record.failed:
        raise typer.Exit(1)


async def _examined(
    address: str, model: str | None, timeout_s: float, prompts: str | None, answers: Path, *, quiet: bool
) -> tuple[ExamRecord, Path]:
    from ragguard.engines.connect import connect, open_engine
    from ragguard.engines.layers import Patience, Retry
    from ragguard.engines.prompts import load_prompts
    from ragguard.scorers.exam.examination import examine, repeated
    from ragguard.scorers.exam.record import record_file

    try:
        answers.parent.mkdir(parents=True, exist_ok=True)
        cache: Path | None = answers
    except OSError:  # nothing is kept there, and a stopped examination begins anew
        cache = None
    once = Patience(attempts=1)  # a server that is not there is said at once
    async with aclosing(Retry(open_engine(address, model=model, timeout_s=timeout_s), once)) as first:
        info = await first.info()
    async with aclosing(connect(address, model=model, timeout_s=timeout_s, cache=cache)) as asked:
        given = load_prompts(prompts or info.prompts)
        if given.name == "nano":
            raise EngineRejected(
                "nano knows its own made-up world alone and no English: `make evaluate-nano` examines it there, and "
                "its model card has the figures"
            )
        spread = {}
        if info.location.startswith("http"):  # a model in this process repeats itself
            async with aclosing(Retry(open_engine(address, model=model, timeout_s=timeout_s))) as uncached:
                spread = await repeated(uncached, given)
        with progress_bar(notes(), "examining", total=1, quiet=quiet) as update:
            record = await examine(asked, given, lambda done, of: update(total=of, completed=done))
    return replace(record, spread=spread), record_file(info, given)


def _show(record: ExamRecord) -> None:
    """Prints each figure with what is needed, and what failing means."""
    from ragguard.scorers.exam.record import ABOUT, NEEDED

    say(f"{record.model}, prompts {record.prompts}, {record.seconds:.0f} s")
    for name, about in ABOUT.items():
        figure = record.figures.get(name)
        value, needed = "   –" if figure is None else f"{figure:.2f}", NEEDED.get(name)
        verdict = record.failed.get(name) and (
            "FAILED" if figure is not None else f"FAILED: {record.reasons[name]}"
        )
        least = ""
        if figure is not None and needed is not None:
            shown, limit = shown_apart(figure, needed)
            value, least = value if figure >= needed else shown, f" (at least {limit})"
        say(f"  {value}  {about}{least}{'  ' + verdict if verdict else ''}")
    if record.spread:
        parts = ", ".join(f"{record.spread[one]:.4f} for {one}" for one in ("abstention", "relevance"))
        say(
            f"  asked again: the same question differs by {parts} (standard deviation of 5 answers), the first answer "
            f"from later ones by {record.spread['cold']:.4f}; scores have at least that error"
        )
    if not record.failed:
        say("passed in everything: all of its scores are given")
        return
    instead = (
        " Relevance is told by the likelihood of the query instead." if record.replaces_relevance else ""
    )
    say(f"Scores that rest on what failed are not given, with the reason.{instead}")
