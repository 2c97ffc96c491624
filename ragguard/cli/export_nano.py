"""`ragguard export-nano DIR`: nano as a Hugging Face checkpoint, for transformers and vLLM."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ragguard.cli.terminal import say


def run(
    directory: Annotated[Path, typer.Argument(help="Where to write it; made if it is missing.")],
    force: Annotated[bool, typer.Option("--force", help="Write into a directory that is not empty.")] = False,
) -> None:
    """Write nano as a checkpoint that transformers and vLLM load."""
    from ragguard.engines.nano.nano_engine import write_checkpoint

    if directory.exists() and not directory.is_dir():
        say(f"{directory} is a file: give a directory", error=True)
        raise typer.Exit(2)
    if directory.is_dir() and any(directory.iterdir()) and not force:
        say(f"{directory} is not empty: give another directory, or --force", error=True)
        raise typer.Exit(2)
    try:
        written = write_checkpoint(directory)
    except OSError as error:
        reason = error.strerror or error
        say(f"nano could not be written to {directory} ({reason}): give another directory", error=True)
        raise typer.Exit(2) from error
    for path in written:
        say(f"{path.stat().st_size:>10,}  {path}")
    say(f"serve it: vllm serve {shlex.quote(str(directory))} --max-model-len 1024")
