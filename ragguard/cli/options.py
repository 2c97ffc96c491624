"""Arguments and options that several commands have, with one text of help each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ragguard.errors import InvalidInput

RunFiles: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="RUNS",
        help="Run files (JSON lines, also .gz; - is the input), stores, files of traces, phoenix://HOST/PROJECT or "
        "langfuse://HOST.",
    ),
]
ENGINES = "nano, smol, http(s)://HOST:PORT/v1[#MODEL], vllm:MODEL, hf:MODEL_OR_FOLDER, gguf:FILE or auto"
"""The engines that a command takes, as its help says."""
EngineAddress: TypeAlias = Annotated[str, typer.Option("--engine", "-e", help=f"{ENGINES}.")]
JudgeAddress: TypeAlias = Annotated[
    str | None, typer.Option("--judge", help="Another engine, for relevance, ratings and grades.")
]
LabelFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--labels", help="A file of people's labels, as `ragguard label` writes it."),
]
PromptSetName: TypeAlias = Annotated[
    str | None,
    typer.Option("--prompts", help="A prompt set: its name, or a TOML file (docs/how-to/prompts.md)."),
]


def check_output(option: str, path: Path | None) -> None:
    """Raises InvalidInput where no file can be written at the path of an option; called before the work whose result
    goes there. None is an option that is not given."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidInput(option, str(path), "a file that can be written, in a folder that is there")
