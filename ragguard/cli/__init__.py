"""The command line: one file a command, each loaded only when it is called."""

from __future__ import annotations


def main() -> None:
    """The entry point of `ragguard`."""
    from ragguard.cli.app import app
    from ragguard.cli.terminal import speak_any_encoding

    speak_any_encoding()
    app()
