"""`ragguard watch DB`: follows a store as runs go on, in the terminal, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragguard.analysis.hops import colour_of
from ragguard.analysis.page import STATES
from ragguard.analysis.wording import MISLEADS, best, counted, named, question_line
from ragguard.cli.terminal import screen
from ragguard.errors import InvalidInput, RagguardError
from ragguard.facts.run_facts import BeliefGain, is_clear
from ragguard.facts.steps import view_step
from ragguard.records import RetrievalStep, Score, ScoredRun
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.text.secret_filter import strip_control_characters


def run(
    database: Annotated[Path, typer.Argument(help="A store, such as ragguard.db.")] = Path("ragguard.db"),
    most: Annotated[
        int, typer.Option("--most", "-n", min=1, help="How many of the latest runs to show.")
    ] = 20,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="Show the latest runs and end.")] = False,
) -> None:
    """Watch runs as they go on: one line a run, hops with their numbers as they are scored.

    Ctrl-C ends it. The command waits for a store that does not exist yet, or is deleted or replaced, and says that
    it waits. Exit code 0; 2 where the path holds something else, and with `--once` where there is no store.
    """
    console = screen()
    if once or database.exists():
        StoreReader(database).close()  # raises where the path holds no store
    if once:
        runs = _latest(database, most)
        console.print(watch_table(runs) if runs else f"no runs in {database}")
        return
    if not console.is_terminal:
        raise InvalidInput(
            "watch", "an output that is no terminal", "a terminal, or --once for a pipe or a file"
        )
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                shown: Table | Text = watch_table(_latest(database, most))
            except RagguardError as error:
                why = f": {error}" if database.exists() else ""
                shown = Text(strip_control_characters(f"waiting for {database} …{why}"), "dim")
            live.update(shown, refresh=True)
            time.sleep(interval)


def _latest(database: Path, most: int) -> list[ScoredRun]:
    """Returns the latest runs, the oldest first. Opens the store anew, as it may have been deleted or replaced."""
    with closing(StoreReader(database)) as store:
        return store.latest(most)


_SHOWN = {"delta_seper": "ΔSePer {:+z.2f}", "udcg": "UDCG {:z.3f}", "coverage": "coverage {:z.2f}"}
"""The scores that are shown of a hop, and how; of one that has none of these, some others."""


def watch_table(runs: Sequence[ScoredRun]) -> Table:
    """Returns a table of runs in the given order: start, question, hops, one a line, and outcome."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    table.add_column("began", no_wrap=True)
    table.add_column("question", ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column("hops", ratio=3, overflow="fold")
    table.add_column("ΔSePer", justify="right", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    for scored in runs:
        table.add_row(*_cells(scored))
    return table


def _cells(scored: ScoredRun) -> tuple[Text, Text, Text, Text, Text]:
    run = scored.run
    began = datetime.fromtimestamp(run.started_ns / 1e9).strftime("%H:%M:%S") if run.started_ns else "–"
    by_step: dict[str, list[Score]] = {}
    for score in scored.scores:
        by_step.setdefault(score.step_id, []).append(score)
    hops = [_hop(number, step, by_step.get(step.id, [])) for number, step in enumerate(run.steps, 1)]
    total = best(scored.scores, "delta_seper_total")
    return (
        Text(began, "dim"),
        Text(strip_control_characters(question_line(run.question))),
        Text("\n").join(hops),
        Text("") if total is None else _gain(total),
        _outcome(scored),
    )


def _hop(number: int, step: RetrievalStep, scores: Sequence[Score]) -> Text:
    """Returns the line of one hop: how many passages it brought, its numbers, and how many passages mislead."""
    cell = Text(f"{number} ", "dim")
    if step.status != "ok":
        return cell.append(step.status, "yellow")
    known = [(form, best(scores, name)) for name, form in _SHOWN.items()]
    told = [form.format(score.value) for form, score in known if score is not None]
    told = told or named(scores)[: len(_SHOWN)]
    cell.append(" · ".join([counted(len(step.passages), "passage"), *told]))
    read = {at + 1 for at in view_step(step, 0).got}
    misleading = sum(
        score.value < MISLEADS and is_clear(score.value, score.stderr) and score.position in read
        for score in scores
        if score.name == "utility"
    )
    return cell.append(f" {misleading} misleading", "red") if misleading else cell


def _gain(score: Score) -> Text:
    """Returns a gain of belief, in colour where it exceeds two standard errors."""
    clear = BeliefGain(score.value, score.stderr).significant
    return Text(f"{score.value:+z.2f}", ("red" if score.value < 0 else "green") if clear else "bright_black")


def _outcome(scored: ScoredRun) -> Text:
    """Returns the outcome of the run: its verdict, its status, or that it waits for its scores."""
    run = scored.run
    correct = best(scored.scores, "answer_correct")
    if correct is not None and correct.label:
        return Text(strip_control_characters(correct.label), colour_of(correct.value - 0.5))
    if state := STATES.get(run.status, run.status):
        return Text(state, "yellow" if run.status not in STATES else "cyan")
    if scored.failures and not scored.scores:
        return Text("not scored", "red")
    if any(score.provisional for score in scored.scores):
        return Text("so far", "dim")
    return Text("" if scored.scores else "not scored yet", "dim")
