"""Golden files: what a program writes, compared with what the version before wrote."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "golden" / "data"
LONGEST_DIFF = 80
"""Lines of a difference that are shown."""


def compare(name: str, found: Any) -> None:
    """Fails with a diff unless `found`, as JSON, is what the golden file `name`.json holds.

    `make golden` (RAGGUARD_WRITE_GOLDEN=1) writes the file instead.
    """
    compare_text(f"{name}.json", json.dumps(found, indent=1, sort_keys=True) + "\n")


def compare_lines(name: str, found: Iterable[Any]) -> None:
    """Compares many small values with a golden file that holds one value a line, sorted."""
    lines = sorted(json.dumps(one, sort_keys=True) for one in found)
    compare_text(f"{name}.jsonl", "".join(f"{line}\n" for line in lines))


def compare_text(name: str, found: str) -> None:
    """Compares a text with a golden file."""
    path = DATA / name
    if os.environ.get("RAGGUARD_WRITE_GOLDEN"):
        path.write_text(found)
    kept = path.read_text() if path.exists() else ""
    if found != kept:
        raise AssertionError(difference(kept.splitlines(), found.splitlines(), name))


def difference(kept: Sequence[str], found: Sequence[str], name: str) -> str:
    """Returns a unified diff of limited length, and a sentence that says what to do about the difference."""
    lines = list(difflib.unified_diff(kept, found, f"{name} as kept", f"{name} as found", "", "", 2, ""))
    if len(lines) > LONGEST_DIFF:
        lines[LONGEST_DIFF:] = [f"… and {len(lines) - LONGEST_DIFF} lines more"]
    advice = f"{name} changed, which is seen from outside; if that is meant: `make golden`, and say so in the commit"
    return "\n".join([advice, *lines])
