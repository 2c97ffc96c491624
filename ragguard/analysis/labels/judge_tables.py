"""The tables of `ragguard validate STORE --labels`: a judge beside people, and the means that their labels correct."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragguard.analysis.labels.corrected import corrected
from ragguard.analysis.labels.items import READERS
from ragguard.analysis.labels.label_file import FEWEST, Label, by_place
from ragguard.analysis.validation.agreement import cohen_kappa
from ragguard.analysis.validation.tables import Cell, Table
from ragguard.metrics.agreement import auc
from ragguard.records import ScoredRun
from ragguard.scorers.grades import RELEVANT

_TOGETHER = "all together"


def judge_tables(runs: Iterable[ScoredRun], labels: Sequence[Label], where: str) -> list[Table]:
    """Returns the agreement of the judge with each person and with all, and the corrected means; raises InvalidInput
    where a label is about another text, or was drawn by another judge."""
    taken = list(runs)
    found = corrected(taken, labels, where)
    judged = {
        item.place: item.judged_label for one in taken for read in READERS.values() for item in read(one)
    }
    groups = {
        (kind, _TOGETHER): list(by_place(labels).values())
        for kind in dict.fromkeys(one.place[0] for one in labels)
    }
    for label in labels:
        groups.setdefault((label.place[0], label.by), []).append(label)
    rows: list[tuple[Cell, ...]] = []
    for (kind, by), some in groups.items():
        pairs = [
            (judged[one.place], one.value) for one in some if one.place[0] == kind and one.place in judged
        ]
        if not pairs:
            continue
        mine, theirs = zip(*pairs, strict=True)
        graded = kind == "grade"
        if graded:
            mine = tuple(map(round, mine))
        least = RELEVANT if graded else 0.5
        says, right = ([value >= least for value in column] for column in (mine, theirs))
        compared = (mine, [*map(round, theirs)]) if graded else (says, right)
        both = sum(a and b for a, b in zip(says, right, strict=True))
        rows.append((
            kind, by, len(pairs), both / sum(says) if any(says) else None, both / sum(right) if any(right) else None,
            *((cohen_kappa(*compared, quadratic=graded), auc(mine, right)) if len(pairs) >= FEWEST else (None, None)),
        ))  # fmt: skip
    means = tuple(
        (name, one.raw, one.value, one.low, one.high, one.labels, one.weight)
        for name, one in found.means.items()
    )
    beside = ("label", "judge beside", "items", "precision", "recall", "κ", "AUC")
    columns = ("metric", "by the judge", "corrected", "low", "high", "labels", "weight of the judge")
    drawn = (
        "Labels are drawn where the judge is unsure, so that it agrees with people more often than here. Of grades: "
        f"4 and 5 are relevant, κ has quadratic weights. κ and AUC are told from {FEWEST} items on."
    )
    return [
        Table("judge-labels", "The judge beside people", beside, tuple(rows), notes=(drawn,)),
        Table("corrected-means", "Means corrected by labels", columns, means, notes=tuple(found.remarks)),
    ]
