"""Puts the commands together. A command is the function `run` of the file of its name, or one of `ELSEWHERE`, imported
when it is called."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, ParamSpec

import typer
import typer.core
import typer.main

from ragguard._version import __version__
from ragguard.cli.terminal import say
from ragguard.errors import RagguardError

OWN_FAULT = "this is a fault of ragguard's own"

GROUPS = {
    "Start": {
        "demo": "Run two small agents offline, and show what ragguard reports.",
        "try": "Ask questions of your own texts, and see what each search did.",
        "init": "Find your framework, and print the lines that attach ragguard.",
        "doctor": "Check an engine: how exact it is, how fast, and what to change.",
        "fetch": "Download smol, a small real model that runs on a laptop.",
    },
    "Look": {
        "report": "Show scored runs: in the terminal, as one page, or live.",
        "try-again": "Ask again without the passage that misled a run, or with the one it missed.",
        "metrics": "Print every metric: range, direction, unit, what it needs, its paper.",
    },
    "Measure": {
        "score": "Score run files into a store; the same command continues after a stop.",
        "label": "Ask a person for the few labels that correct a judge's numbers.",
        "validate": "Find out which metric predicts how good the answers are.",
        "calibrate": "Choose the threshold of the guard or of advice, with a promise.",
    },
    "Gate": {
        "compare": "Compare two sets of scored runs; for a CI gate, --fail-if.",
        "baseline": "Give the runs of a store a name, to compare later runs with them.",
        "cases": "Turn runs into regression cases that later versions have to pass.",
    },
    "Operate": {
        "serve": "Take traces and runs over HTTP, and score them.",
    },
}
"""The help line of each command by its name and its group, apart from the commands, so that `ragguard --help` imports
no engine."""
SELDOM = {
    "questions": "Write the sub-questions that reference reports answer.",
    "export-nano": "Write nano as a checkpoint that transformers and vLLM load.",
}
"""The commands that few users need: `ragguard --help` only names them."""
COMMANDS = {name: line for group in (*GROUPS.values(), SELDOM) for name, line in group.items()}
ELSEWHERE = {
    "try-again": ("try_again", "run"),
    "baseline": ("compare", "name_runs"),
    "export-nano": ("weights", "export_nano"),
    "fetch": ("weights", "fetch_model"),
}
"""The file and the function of commands that have no file of their own."""


EXAMPLES = {
    "demo": "demo --out demo-out",
    "try": 'try notes "How many days of leave do I get?"',
    "init": "init --write",
    "doctor": "doctor http://localhost:8000/v1 --exam",
    "fetch": "fetch smol",
    "report": "report ragguard.db --html report.html",
    "try-again": "try-again ragguard.db 30e7aa11 --engine http://localhost:8000/v1",
    "metrics": "metrics udcg",
    "score": "score runs.jsonl --engine http://localhost:8000/v1 --dry-run",
    "label": "label ragguard.db",
    "validate": "validate runs.jsonl --engine http://localhost:8000/v1",
    "calibrate": "calibrate runs.jsonl --engine http://localhost:8000/v1",
    "compare": "compare before.db after.db --fail-if 'udcg < -0.02'",
    "baseline": "baseline ragguard.db monday",
    "cases": "cases ragguard.db --cause misled",
    "serve": "serve --store ragguard.db --engine http://localhost:8000/v1",
    "questions": "questions reports.jsonl --engine http://localhost:8000/v1",
    "export-nano": "export-nano nano",
}
"""A command line for each command, at the end of its help."""


P = ParamSpec("P")


def ends_in_a_sentence(command: str, run: Callable[P, None]) -> Callable[P, None]:
    """Makes a command end in one sentence and exit code 2 where it would end in a traceback, and 130 after Ctrl-C.

    Other signals, the command's own exit codes and wrong options are not changed. With RAGGUARD_TRACEBACK=1 a fault
    that is ragguard's own is shown with its traceback.
    """

    @functools.wraps(run)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            return run(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            say(f"ragguard {command}: stopped", error=True)
            raise typer.Exit(130) from None
        except RagguardError as error:
            sentence = str(error)
        except (OSError, UnicodeError, MemoryError) as error:
            sentence = f"{type(error).__name__}: {error}; check the files and the disk"
        except Exception as error:
            if os.environ.get("RAGGUARD_TRACEBACK"):
                raise
            sentence = f"{OWN_FAULT} ({type(error).__name__}: {error}); RAGGUARD_TRACEBACK=1 shows where"
        say(f"ragguard {command}: {sentence}", error=True)
        raise typer.Exit(2)

    return guarded


def function_of(command: str) -> Callable[..., None]:
    """Imports the file of a command, and returns its function."""
    file, function = ELSEWHERE.get(command, (command, "run"))
    found: Callable[..., None] = getattr(import_module(f"ragguard.cli.{file}"), function)
    return found


class LazyGroup(typer.core.TyperGroup):
    """A group whose commands are imported when they are called."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        run = ends_in_a_sentence(cmd_name, function_of(cmd_name))
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(
            name=cmd_name, short_help=COMMANDS[cmd_name], epilog=f"Example: ragguard {EXAMPLES[cmd_name]}"
        )(run)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command that is called; an unknown one is an error that names those most like it."""
        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands from `GROUPS`, without importing any."""
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, line in commands.items()])
        formatter.write_paragraph()
        formatter.write_text(f"Seldom needed: {', '.join(SELDOM)}. Each command has --help.")


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ragguard {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="'NAME: VALUE'",
            help="A header for each request to a server, such as 'api-key: KEY'. Give it before the command.",
        ),
    ] = None,
) -> None:
    """Tells what each retrieval did for the model that reads it."""
    if header:
        before = os.environ.get("RAGGUARD_HEADERS", "")
        os.environ["RAGGUARD_HEADERS"] = "\n".join([before, *header])
        context.call_on_close(lambda: os.environ.update(RAGGUARD_HEADERS=before))
