"""A real `ragguard serve` in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.program import environment


class Served:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url


@contextmanager
def served(folder: Path, *options: str, **variables: str) -> Iterator[Served]:
    """Starts the service over a store in a folder, and kills it at the end if it still runs."""
    arguments = [
        "serve",
        "-e",
        "nano",
        "-s",
        str(folder / "r.db"),
        "--port",
        "0",
        "--scorers",
        "utility",
        *options,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragguard", *arguments], text=True, stderr=subprocess.PIPE,
        env={**environment(), **variables},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+(?=;)", said)
        assert found, said + process.stderr.read()
        yield Served(process, found[0])
    finally:
        process.kill()
        process.communicate()
