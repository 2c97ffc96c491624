"""`ragguard watch DB`: follows a store as runs go on, in the terminal, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragguard.cli.terminal import say, screen
from ragguard.errors import RagguardError

if TYPE_CHECKING:
    from ragguard.records import ScoredRun


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
    it waits. Into a pipe each run is printed once it is scored. Exit code 0; 2 where the path holds something else,
    and with `--once` where there is no store.
    """
    from ragguard.analysis.watch import watch_table
    from ragguard.storage.sqlite.store import Store

    console = screen()
    if once or database.exists():
        Store(database, read_only=True).close()  # raises where the path holds no store
    if once:
        looked = next(_looks(database, most))
        console.print(watch_table(looked) if looked else f"no runs in {database}")
        return
    with suppress(KeyboardInterrupt):
        if console.is_terminal:
            _show(database, most, interval)
        else:
            _print(database, most, interval)


def _show(database: Path, most: int, interval: float) -> None:
    """Keeps one table in the terminal up to date."""
    import time

    from rich.live import Live
    from rich.text import Text

    from ragguard.analysis.watch import watch_table

    with Live(console=screen(), auto_refresh=False) as live:
        for runs in _looks(database, most):
            if runs is None:
                live.update(Text(f"waiting for {database} …", "dim"), refresh=True)
            else:
                live.update(watch_table(runs), refresh=True)
            time.sleep(interval)


def _print(database: Path, most: int, interval: float) -> None:
    """Prints each run as a line once it is scored, and once more where it gets further scores."""
    import time

    from ragguard.analysis.watch import is_scored, watch_line

    printed: dict[str, str] = {}
    said_waiting = False
    for runs in _looks(database, most):
        if runs is None and not said_waiting:
            say(f"waiting for {database} …", error=True)
            said_waiting = True
        for scored in runs or ():
            if is_scored(scored) and printed.get(scored.run.id) != (line := watch_line(scored)):
                printed[scored.run.id] = line
                say(line)
        time.sleep(interval)


def _looks(database: Path, most: int) -> Iterator[list[ScoredRun] | None]:
    """Yields the latest runs again and again, the oldest first; None while there is no store that can be read.

    The store is opened anew each time, as it may have been deleted or replaced.
    """
    from ragguard.storage.sqlite.store import Store

    while True:
        runs: list[ScoredRun] | None = None
        if database.exists():
            with suppress(RagguardError), closing(Store(database, read_only=True)) as store:
                runs = store.latest(most)
        yield runs
