"""The command line: one file for each command, loaded only when it is called."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of `ragguard`."""
    try:
        from ragguard.cli.app import app
        from ragguard.cli.terminal import speak_any_encoding

        speak_any_encoding()
        app()
    except KeyboardInterrupt:  # while modules are loaded: a command that runs ends by itself
        sys.stderr.write("ragguard: stopped\n")
        raise SystemExit(130) from None
