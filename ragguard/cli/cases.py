"""`ragguard cases DATA [RUN…]`: makes regression cases of runs, by which later versions are checked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ragguard.analysis.regression_cases import case_of, read_cases, retrieved, write_cases
from ragguard.cli.terminal import say
from ragguard.errors import InvalidInput
from ragguard.facts.causes import CAUSES, cause_of
from ragguard.facts.run_view import RunView
from ragguard.runtime.arguments import check_output, one_of
from ragguard.storage.source import open_source
from ragguard.storage.sqlite import baselines
from ragguard.text.plain import counted


def run(
    data: Annotated[str, typer.Argument(help="A store.")],
    run_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Runs, each by its id or a unique part of it."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file of cases; cases that it already has stay.")
    ] = Path("cases.jsonl"),
    cause: Annotated[str | None, typer.Option(help="All runs of one cause, such as misled.")] = None,
    document: Annotated[
        str | None, typer.Option(help="All runs that retrieved this document: a passage's id, file or title.")
    ] = None,
    thumb: Annotated[str | None, typer.Option(help="All runs with this thumb: up or down.")] = None,
) -> None:
    """Turn runs into regression cases: question, right answers, what must be found, what must not be read.

    Then: compare OLD NEW --cases FILE, or pytest --ragguard-cases FILE with the fixture ragguard_case.

    Exit code 0: done. 2: no run is chosen, or one cannot become a case; a sentence says why.
    """
    if not run_ids and cause is None and document is None and thumb is None:
        raise InvalidInput("RUN", None, "ids of runs, or --cause, --document or --thumb")
    if cause is not None:
        one_of("--cause", cause, [*CAUSES])
    if thumb is not None:
        one_of("--thumb", thumb, ["up", "down"])
    check_output("--out", out)
    source = open_source(data)
    seen = set[str]().union(*(baselines.documents(path) for path in source.stores))
    corpus = baselines.fingerprint(seen)
    made, refused = [], []
    for scored in map(source.run_of, run_ids) if run_ids else source.scored_runs():
        view = RunView(scored.run, scored.scores, scored.failures)
        counted_as = cause_of(view)
        if (
            (cause is not None and counted_as != cause)
            or (thumb is not None and view.feedback("thumb") != thumb)
            or (document is not None and not retrieved(scored.run, document))
        ):
            continue
        try:
            made.append(case_of(view, counted_as, corpus))
        except InvalidInput as error:
            refused.append(error)
    if not made:
        raise (
            refused[0] if refused else InvalidInput("RUN", "no run", "runs of this cause, document or thumb")
        )
    known = {case.id for case in read_cases(out)} if out.exists() else set[str]()
    whole = write_cases(made, out)
    new = len({case.id for case in made} - known)
    say(f"{counted(new, 'new case')} in {out}, which has {whole}; next: ragguard compare {shlex.quote(data)} NEW.db "
        f"--cases {shlex.quote(str(out))}")  # fmt: skip
    for wrong in refused:
        say(f"no case: {wrong}", error=True)
