"""The options that every benchmark has. `--quick` runs it to its end in seconds, on one core: a check that it still
runs and writes the fields that pages quote. Its figures mean nothing and go to `out/quick/`."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def is_quick() -> bool:
    """Returns whether this process was started with `--quick`."""
    return "--quick" in sys.argv[1:]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser that knows `--quick`."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="small sizes: a check that takes seconds")
    return made


def parse(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """Returns the options that were given; with `--quick` those in `quick` have these defaults."""
    if is_quick():
        parser.set_defaults(**quick)
    return parser.parse_args()
