"""`ragguard serve`: one process with a store that takes traces and runs over HTTP, scores them, and answers agents."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from ragguard.cli.run_source import RetrievingTools
from ragguard.cli.scoring_options import ScoringOptions, takes_scoring_options
from ragguard.cli.terminal import say
from ragguard.client import RagGuard
from ragguard.errors import InvalidInput, MissingDependency, StoreError
from ragguard.facts.verdicts import MISLEADS
from ragguard.guard import DistractorGuard
from ragguard.traces.spool import Spool

TOKEN = "RAGGUARD_TOKEN"
_SWITCH_SECONDS = 0.001
"""How long a thread that scores may go on while one that takes spans waits for the interpreter."""
_HERE = ("127.0.0.1", "::1", "localhost")


@takes_scoring_options
def run(
    scoring: ScoringOptions,
    store: Annotated[
        str, typer.Option("--store", "-s", help="The file for runs and scores.")
    ] = "ragguard.db",
    host: Annotated[
        str, typer.Option(help=f"The address to listen at. Any address but this machine's own needs {TOKEN}.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 4318,
    settle: Annotated[
        float,
        typer.Option(
            min=0, help="The seconds without a span after which a trace is complete, if its root has ended."
        ),
    ] = 5.0,
    quiet: Annotated[
        float, typer.Option(min=0, help="The seconds without a span after which any other trace is complete.")
    ] = 60.0,
    tools: RetrievingTools = None,
    threshold: Annotated[
        float, typer.Option(help="For /v1/prune: passages with less utility are dropped.")
    ] = MISLEADS,
    budget_ms: Annotated[
        float, typer.Option(help="For /v1/prune: milliseconds that a decision may take.")
    ] = 300.0,
) -> None:
    """Take traces and runs over HTTP, score them into a store, and answer agents in any language.

    Addresses: / (a live page), /v1/traces (OTLP), /v1/runs, /v1/prune, /v1/advise, /v1/feedback, /compute_info_gain,
    /metrics, /healthz, /readyz.
    Runs that are not scored when it ends are scored when it starts again. With --scorers none, runs are stored without
    scores.
    Exit code 0: ended by Ctrl-C or SIGTERM. 2: it could not begin: a wrong option or engine, or no store, or an
    address that is taken.
    """
    token = os.environ.get(TOKEN, "").strip()  # a file that it comes from may end in a line feed
    if host not in _HERE and not token:
        raise InvalidInput(
            "--host", host, f"127.0.0.1, or any address once {TOKEN} holds a token that requests must bring"
        )
    try:
        import uvicorn

        from ragguard.serve.app import Endpoints, InfoGain, application
        from ragguard.serve.connections import EndingServer, ImpatientProtocol
        from ragguard.serve.ingest import Ingest
    except ImportError as error:
        raise MissingDependency(error.name or "more", "ragguard serve", "serve") from error

    if scoring["scorers"] == ("none",):
        scoring["scorers"] = ()
    rg = RagGuard(**scoring, store=store, exit_timeout=0.0)
    judge = scoring["judge"]
    of_guard = {name: scoring[name] for name in ("judge", "prompts", "relevance")}
    service = Endpoints(
        rg,
        Ingest(
            rg,
            Spool(f"{store}-spans"),
            settle=settle,
            quiet=quiet,
            live=scoring["scorers"] != (),
            tools=tools or (),
        ),
        DistractorGuard(rg.engine, threshold, budget_ms, **of_guard),
        InfoGain(rg.engine, judge),
    )
    config = uvicorn.Config(
        application(service, token),
        host,
        port,
        log_level="warning",
        timeout_graceful_shutdown=3,
        access_log=False,
        http=ImpatientProtocol,
    )
    try:
        listening = config.bind_socket()
    except SystemExit as error:
        raise StoreError(
            f"{host}:{port} is taken or not an address of this machine; name another --port"
        ) from error
    sys.setswitchinterval(_SWITCH_SECONDS)
    listening.listen(config.backlog)  # requests that come from now on wait until they are taken
    at = listening.getsockname()
    say(f"listening at http://{at[0]}:{at[1]}; runs and scores go to {store}", error=True)
    for one in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises again the one that has ended it
        signal.signal(one, lambda *_: None)
    EndingServer(config).run(sockets=[listening])
