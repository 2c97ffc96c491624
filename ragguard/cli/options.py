"""Arguments and options that several commands have, with one text of help each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

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
