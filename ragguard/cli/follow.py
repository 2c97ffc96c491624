"""Shows the runs of a store as they come (`ragguard report DB --follow`): a line for each, with its hops' numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from rich.live import Live
from rich.table import Table
from rich.text import Text

from ragguard.analysis.hops import COLOURS
from ragguard.analysis.wording import named, question_line
from ragguard.cli.terminal import screen
from ragguard.errors import InvalidInput, RagguardError
from ragguard.facts.run_view import STATES, HopView, RunView
from ragguard.facts.verdicts import BeliefGain
from ragguard.records import Score
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.text.numbers import as_shown
from ragguard.text.plain import counted
from ragguard.text.secret_filter import strip_control_characters


def follow(database: Path, most: int) -> None:
    """Shows the latest runs of a store in the terminal, and again as they go on, until Ctrl-C.

    Waits for a store that does not exist yet, or is deleted or replaced, and says so.
    """
    console = screen()
    if database.exists():
        StoreReader(database).close()  # raises where the path holds no store
    if not console.is_terminal:
        raise InvalidInput(
            "--follow",
            "an output that is no terminal",
            "a terminal; without --follow the runs that are there are listed",
        )
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            try:
                shown: Table | Text = follow_table(_latest(database, most))
            except RagguardError as error:
                why = f": {error}" if database.exists() else ""
                shown = Text(strip_control_characters(f"waiting for {database} …{why}"), "dim")
            live.update(shown, refresh=True)
            time.sleep(_INTERVAL)


def _latest(database: Path, most: int) -> list[RunView]:
    """Returns the latest runs, the oldest first. Opens the store anew, as it may have been deleted or replaced."""
    with closing(StoreReader(database)) as store:
        return [RunView(one.run, one.scores, one.failures) for one in store.latest(most)]


_INTERVAL = 0.5
"""The seconds between two looks at the store."""
_SHOWN = {"delta_seper": "ΔSePer {:+z.2f}", "udcg": "UDCG {:z.3f}", "coverage": "coverage {:z.2f}"}
"""The scores that are shown of a hop, and how; of one that has none of these, some others."""


def follow_table(runs: Sequence[RunView]) -> Table:
    """Returns a table of runs in the given order: start, question, hops, one a line, and outcome."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    if timed := any(view.run.started_ns for view in runs):
        table.add_column("began", no_wrap=True)
    table.add_column("question", ratio=2, no_wrap=True, overflow="ellipsis")
    table.add_column("hops", ratio=3, overflow="fold")
    table.add_column("ΔSePer", justify="right", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    for view in runs:
        total = view.find("delta_seper_total")
        table.add_row(
            *([Text(_began(view.run.started_ns), "dim")] if timed else []),
            Text(strip_control_characters(question_line(view.run.question))),
            Text("\n").join(map(_hop, view.hops)),
            Text("") if total is None else _gain(total),
            _outcome(view),
        )
    return table


def _began(started_ns: int) -> str:
    """Returns the time of day at which a run began, in the zone of this machine, with the date if that is not today."""
    began = datetime.fromtimestamp(started_ns / 1e9)
    is_today = began.date() == datetime.now().date()
    return f"{began:{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M'}}" if started_ns else ""


def _hop(hop: HopView) -> Text:
    """Returns the line of one hop: how many passages it brought, its numbers, and how many passages mislead."""
    cell = Text(f"{hop.number} ", "dim")
    if hop.step.status != "ok":
        return cell.append(hop.step.status, "yellow")
    known = [(form, hop.find(name)) for name, form in _SHOWN.items()]
    numbers = [
        form.format(as_shown(score.value, int(form[-3]))) for form, score in known if score is not None
    ]
    numbers = numbers or list(named(hop.scores))[: len(_SHOWN)]
    cell.append(" · ".join([counted(len(hop.step.passages), "passage"), *numbers]))
    return cell.append(f" {hop.misleading} misleading", "red") if hop.misleading else cell


def _gain(score: Score) -> Text:
    """Returns a gain of belief, in colour where it exceeds two standard errors."""
    return Text(f"{as_shown(score.value):+z.2f}", COLOURS[BeliefGain(score.value, score.stderr).tone])


def _outcome(view: RunView) -> Text:
    """Returns the outcome of the run: its verdict, its status, or that it waits for its scores."""
    if view.answer_verdict:
        return Text(strip_control_characters(view.answer_verdict), COLOURS[view.answer_tone])
    if view.state:
        return Text(view.state, "cyan" if view.run.status in STATES else "yellow")
    if view.failures and not view.counted.all:
        return Text("not scored", "red")
    if view.provisional:
        return Text("so far", "dim")
    return Text("" if view.counted.all else "not scored yet", "dim")
