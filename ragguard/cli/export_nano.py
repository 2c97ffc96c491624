"""`ragguard export-nano DIR`: nano as a Hugging Face checkpoint, for transformers and vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    directory: Annotated[Path, typer.Argument(help="Where to write it; made if it is missing.")],
    force: Annotated[bool, typer.Option("--force", help="Write into a directory that is not empty.")] = False,
) -> None:
    """Write nano as a checkpoint that transformers and vLLM load."""
    from ragguard.engines.nano.checkpoint import write_checkpoint

    if directory.exists() and not directory.is_dir():
        typer.echo(f"{directory} is a file: give a directory", err=True)
        raise typer.Exit(2)
    if directory.is_dir() and any(directory.iterdir()) and not force:
        typer.echo(f"{directory} is not empty: give another directory, or --force", err=True)
        raise typer.Exit(2)
    try:
        written = write_checkpoint(directory)
    except OSError as error:
        reason = error.strerror or error
        typer.echo(f"nano could not be written to {directory} ({reason}): give another directory", err=True)
        raise typer.Exit(2) from error
    for path in written:
        typer.echo(f"{path.stat().st_size:>10,}  {path}")
    typer.echo(f"serve it: vllm serve {directory} --max-model-len 1024")
