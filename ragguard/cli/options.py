"""Arguments and options that several commands have, with one text of help each."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

RunFiles: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="RUNS", help="Run files (JSON lines, also .gz; - is the input), or stores."),
]
EngineAddress: TypeAlias = Annotated[
    str, typer.Option("--engine", "-e", help="nano, http://HOST:PORT/v1[#MODEL], vllm:MODEL or hf:MODEL.")
]
PromptSetName: TypeAlias = Annotated[
    str | None, typer.Option("--prompts", help="A prompt set: its name, or a TOML file.")
]
