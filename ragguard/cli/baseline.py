"""`ragguard baseline STORE [NAME]`: gives a name to the runs of a store, so that later ones are compared with them."""

from __future__ import annotations

from typing import Annotated

import typer

from ragguard.cli.terminal import say


def run(
    store: Annotated[str, typer.Argument(help="A store.")],
    name: Annotated[str, typer.Argument(help="The name to set; without one, the baselines are listed.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Forget the name; its runs stay.")] = False,
) -> None:
    """Name the runs since the last baseline, or all where there is none; then: compare STORE [AFTER] --baseline NAME.

    Exit code 0: done. 2: there is no such store or baseline, or no run to name.
    """
    from ragguard.storage.sqlite import baselines

    if name and remove:
        baselines.remove_baseline(store, name)
        say(f"{name} is no baseline of {store} any more; its runs stay")
        return
    shown = [baselines.set_baseline(store, name)] if name else baselines.baselines(store).values()
    for one in shown:
        say(f"{one.name}  {one.at}  {one.runs:,} runs  documents {one.documents}")
    if not shown:
        say(f"{store} has no baseline; `ragguard baseline {store} NAME` sets one")
