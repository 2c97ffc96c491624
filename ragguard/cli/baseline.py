"""`ragguard baseline STORE [NAME]`: gives a name to the runs of a store, so that later ones are compared with them."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from ragguard.cli.terminal import say
from ragguard.errors import InvalidInput


def run(
    store: Annotated[str, typer.Argument(help="A store.")],
    name: Annotated[
        str | None, typer.Argument(help="The name to set; without one, the baselines are listed.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the name; its runs stay.")] = False,
) -> None:
    """Name the runs since the last baseline, or all where there is none; then: compare STORE [AFTER] --baseline NAME.

    A name that is taken moves to these runs, which is said.

    Exit code 0: done. 2: there is no such store or baseline, or no run to name.
    """
    from ragguard.storage.sqlite import baselines

    if remove:
        if not name:
            known = ", ".join(baselines.baselines(store)) or "there is none"
            raise InvalidInput("--remove", "no name", f"the name of a baseline: {known}")
        baselines.remove_baseline(store, name)
        say(f"{name} is no baseline of {store} any more; its runs stay")
        return
    before = baselines.baselines(store)
    shown = before.values() if name is None else [baselines.set_baseline(store, name)]
    for one in shown:
        say(f"{one.name}  {one.at}  {one.runs:,} runs  documents {one.documents}")
    if name in before:
        say(
            f"{name} was the name of {before[name].runs:,} earlier runs, of {before[name].at}; it is not any more"
        )
    if not shown:
        say(f"{store} has no baseline; `ragguard baseline {shlex.quote(store)} NAME` sets one")
