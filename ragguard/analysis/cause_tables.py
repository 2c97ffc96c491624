"""Tables of how runs came out, such as misled: of one set, and of two sets compared question by question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ragguard.analysis.tables import Cell, Table
from ragguard.facts.causes import CAUSES, JUDGED, CauseCounts, DocumentCount, largest_first, short_words
from ragguard.text.plain import counted

SIGNIFICANT = 0.05
_DOCUMENTS, _GROUPS = 5, 10
"""The most documents and groups of a table."""
_GATE_NAMES = {"contested": "contested_answer"}
"""The names in a condition of `--fail-if` that are not the cause's own, as a metric has it."""

CAUSE_NAMES = tuple(_GATE_NAMES.get(cause, cause) for cause in CAUSES if cause in JUDGED)
"""The names of causes in a condition of `--fail-if`."""


def count_tables(counts: CauseCounts) -> list[Table]:
    """Returns the tables of what runs count as: all, the documents that did harm, and runs by retriever and by name, if
    there are several."""
    total = counts.runs or 1
    rows: list[tuple[Cell, ...]] = [
        (CAUSES[cause], count, f"{count / total:.0%}", cause) for cause, count in counts.rows
    ]
    tables = [
        Table("causes", counts.sentence, ("what decided the answer", "runs", "share", "--cause"), tuple(rows))
    ]
    for name, title, documents in (
        ("misleading", "Documents that state a wrong answer", counts.misleading),
        (
            "contested",
            "Documents of contested runs, with the wrong answer or the reference",
            counts.contested,
        ),
        ("unused", "Documents that were read in several runs and used in none", counts.unused),
    ):
        if documents:
            tables.append(_document_table(name, title, documents, counts.left_out.get(name, 0)))
    for name, title, groups, way in (
        ("by-retriever", "By retriever", counts.by_retriever, ""),
        ("by-name", "By name of run", counts.by_name, "; every run with its name: --csv FILE"),
    ):
        if len(groups) > 1:
            tables.append(_group_table(name, title, groups, way))
    return tables


def _document_table(name: str, title: str, documents: Sequence[DocumentCount], left_out: int) -> Table:
    columns = ("document", "runs", "read", "used", "misled", "contested")
    rows = tuple(
        (one.id, one.runs, one.read, one.used, one.misled, one.contested) for one in documents[:_DOCUMENTS]
    )
    more = len(documents) - len(rows) + left_out
    return Table(name, f"{title}, by the number of runs", columns, rows, notes=_more(more, ": --json"))


def _group_table(name: str, title: str, groups: Mapping[str, Counter[str]], way: str) -> Table:
    """Returns the table of the largest groups; `way` says where those that are left out stand."""
    shown = dict(islice(largest_first(groups).items(), _GROUPS))
    causes = [cause for cause in CAUSES if any(cause in counts for counts in shown.values())]
    rows: list[tuple[Cell, ...]] = [
        (group, *(counts.get(cause, 0) for cause in causes)) for group, counts in shown.items()
    ]
    return Table(
        name, title, (title.removeprefix("By ").lower(), *map(short_words, causes)), tuple(rows),
        notes=_more(len(groups) - len(shown), way),
    )  # fmt: skip


def _more(left_out: int, way: str) -> tuple[str, ...]:
    return (f"and {left_out:,} more{way}",) if left_out else ()


@dataclass(frozen=True, slots=True)
class CauseChange:
    """The change of the share of questions whose runs count as one cause, over the questions judged on both sides."""

    cause: str
    questions: int
    before: float
    after: float
    low: float
    high: float
    """The 95 % interval of the difference, by Agresti and Min; it holds 0 if the exact test does not reject it."""
    came: int
    """The questions whose share rose."""
    went: int
    """The questions whose share fell."""
    p: float
    """The chance that so many questions changed in one direction rather than the other, if both were as likely: the
    exact test of McNemar."""

    @property
    def difference(self) -> float:
        """The share after less that before."""
        return self.after - self.before

    @property
    def name(self) -> str:
        """The name of the share in a condition of `--fail-if`."""
        return _GATE_NAMES.get(self.cause, self.cause)


def cause_changes(
    before: Mapping[str, Counter[str]], after: Mapping[str, Counter[str]], shared: Iterable[str]
) -> list[CauseChange]:
    """Returns the changes of all causes that stand on either side.

    Args:
        before: The causes of the judged runs of each question.
        after: The same on the other side.
        shared: The questions that both sides have.
    """
    both = [one for one in shared if before.get(one) and after.get(one)]
    found = {cause for one in both for cause in (*before[one], *after[one])}
    return [_change(cause, [(before[one], after[one]) for one in both]) for cause in CAUSES if cause in found]


def _change(cause: str, sides: Sequence[tuple[Counter[str], Counter[str]]]) -> CauseChange:
    shares = [(was[cause] / was.total(), now[cause] / now.total()) for was, now in sides]
    gaps = [now - was for was, now in shares]
    rose, fell = sum(max(gap, 0) for gap in gaps), sum(max(-gap, 0) for gap in gaps)
    came, went, number = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps), len(sides)
    middle = (rose - fell) / (number + 2)
    spread = 1.96 * math.sqrt(rose + fell + 1 - (rose - fell) ** 2 / (number + 2)) / (number + 2)
    low, high, p = middle - spread, middle + spread, two_sided(came, went)
    if p > SIGNIFICANT:  # what the exact test does not reject belongs into the interval
        low, high = min(low, 0.0), max(high, 0.0)
    return CauseChange(
        cause, number, sum(was for was, _ in shares) / number, sum(now for _, now in shares) / number,
        low=max(-1.0, low), high=min(1.0, high), came=came, went=went, p=p,
    )  # fmt: skip


def two_sided(came: int, went: int) -> float:
    """Returns the exact two-sided p of a sign test: as many or more of the changes in one direction."""
    changed = came + went
    whole = math.lgamma(changed + 1) - changed * math.log(2)
    tail = math.fsum(
        math.exp(whole - math.lgamma(one + 1) - math.lgamma(changed - one + 1))
        for one in range(min(came, went) + 1)
    )
    return min(1.0, 2 * tail)


def clear_causes(changes: Sequence[CauseChange]) -> list[str]:
    """Returns the causes whose shares differ, with p corrected for all of them."""
    return [one.cause for one in changes if one.p * len(changes) <= SIGNIFICANT]


def about_causes(changes: Sequence[CauseChange]) -> str:
    """Returns the sentences about p, and which shares differ."""
    clear = [*map(short_words, clear_causes(changes))]
    measurable = f"these shares differ: {', '.join(clear)}" if clear else "no share differs measurably"
    return (
        "p is McNemar's exact test for each cause, on the questions that changed. "
        f"With p corrected for {counted(len(changes), 'cause')}, {measurable}."
    )


def change_table(changes: Sequence[CauseChange], about_right: str = "") -> Table:
    """Returns the table of two sides' causes, with `Comparison.about_right` in its note."""
    rows = tuple(
        (CAUSES[one.cause], f"{one.difference:+.0%} ({one.low:+.0%} … {one.high:+.0%})", one.p, f"{one.before:.0%}",
         f"{one.after:.0%}", f"+{one.came:,} −{one.went:,}")
        for one in changes
    )  # fmt: skip
    questions = changes[0].questions if changes else 0
    notes = (about_causes(changes) + about_right,)
    columns = ("what decided the answer", "difference (95 %)", "p", "before", "after", "questions")
    return Table("causes", f"What decided the answers to {questions:,} questions", columns, rows, notes=notes)
