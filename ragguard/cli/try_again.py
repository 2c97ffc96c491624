"""`ragguard try-again DATA RUN`: asks the reader again without what misled a run, or with what it missed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from ragguard.cli.scoring_options import EngineAddress, PromptSetName
from ragguard.cli.terminal import say
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.facts.run_view import CONFIRMED, RunView
from ragguard.lab.counter_test import CounterTest, counter_test
from ragguard.storage.source import ScoredSource
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store


def run(
    data: Annotated[str, typer.Argument(help="A store.")],
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run, by its id or a unique part of it.")],
    engine: EngineAddress = "auto",
    prompts: PromptSetName = None,
    put_in: Annotated[
        str | None,
        typer.Option(help="The text of the passage that was missing, if the run does not know it."),
    ] = None,
) -> None:
    """Ask the reader again without the passage that misled a run, or with the one that it missed.

    If the answer becomes right, the cause is confirmed. The store keeps that, and report --run shows it.

    Exit code 0: confirmed. 1: not confirmed. 2: it cannot be tested; a sentence says why.
    """
    StoreReader(data).close()  # a file that is no store is an error before it is written to
    scored = ScoredSource([Path(data)]).run_of(run_id)
    test = asyncio.run(_tested(RunView(scored.run, scored.scores), engine, prompts, put_in))
    if test.confirmed:
        with closing(Store(data, scored=False)) as store:
            store.add_metadata(scored.run.id, {CONFIRMED: test.cause})
    say(test.sentence)
    if not test.confirmed:
        raise typer.Exit(2 if test.was_right else 1)


async def _tested(view: RunView, engine: str, prompts: str | None, put_in: str | None) -> CounterTest:
    reader = connect(engine)
    try:
        known = None if prompts is None else load_prompts(prompts)
        return await counter_test(view, reader, put_in=put_in, prompts=known)
    finally:
        await reader.aclose()
