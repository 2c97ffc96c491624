"""How often words alone tell whether an answer is right, as people judge it: `python -m studies.right_by_words FILE…`,
with files of EVOUNA.

Beside `right_by_words` stands a plain search for a reference in the answer. An answer that words do not decide counts
as wrong for the agreement with people; of those that are decided, the share that is right is a column of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragguard.analysis.tables import Cell, Table
from ragguard.errors import RagguardError
from ragguard.metrics.answer_verdict import right_by_words
from ragguard.text.language import normalise
from studies.readers.evouna import SYSTEMS, JudgedAnswer, read

COLUMNS = (
    "answers of", "answers", "right by people", "agreement", "agreement of a search", "decided", "right of decided",
    "wrong of called right",
)  # fmt: skip


def table(name: str, answers: Sequence[JudgedAnswer]) -> Table:
    """Returns the agreement with people, over all systems and for each."""
    verdicts = [(one, right_by_words(one.answer, one.references, one.question)) for one in answers]
    rows = [
        _row(system, [pair for pair in verdicts if system in ("all", pair[0].system)])
        for system in ("all", *SYSTEMS)
    ]
    return Table(f"right-by-words-{name}", f"Right by words, {name}", COLUMNS, tuple(filter(None, rows)))


def _row(system: str, verdicts: Sequence[tuple[JudgedAnswer, bool | None]]) -> tuple[Cell, ...]:
    if not verdicts:
        return ()
    count = len(verdicts)
    decided = [(one.right, said) for one, said in verdicts if said is not None]
    called = [right for right, said in decided if said]
    return (
        system, count, sum(one.right for one, _ in verdicts) / count,
        sum((said is True) == one.right for one, said in verdicts) / count,
        sum(_searched(one) == one.right for one, _ in verdicts) / count,
        len(decided) / count, sum(right == said for right, said in decided) / max(1, len(decided)),
        called.count(False) / max(1, len(called)),
    )  # fmt: skip


def _searched(one: JudgedAnswer) -> bool:
    text = f" {normalise(one.answer)} "
    return any(f" {normalise(reference)} " in text for reference in one.references)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    try:
        for path in parser.parse_args().files:
            print(table(path.stem, list(read(path))).markdown())
    except (RagguardError, OSError) as error:
        parser.exit(2, f"python -m studies.right_by_words: {error}\n")


if __name__ == "__main__":
    main()
