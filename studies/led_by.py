"""How often `led_by` names the hop that a query needs, on questions of several hops with known parts: a table of the
study `real`.

Each part of a question is a hop: its query has the answers that it needs
filled in, and it read the paragraph that answers it between two others of the question. One hop is useless: a part of
another question, with that question's paragraphs or with more of this one's, or a search for another paragraph of this
question by its title. The settings in `ragguard/facts/leads.py` were chosen on half 0 of MuSiQue's questions; half 1
is the one to report.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from ragguard.analysis.tables import Table
from ragguard.facts.leads import with_leads
from ragguard.records import Passage, RetrievalStep, Run
from studies.readers.multi_hop import MultiHop

USELESS = ("another question's", "more of this question's", "by a title")
ORDERS = 5
"""How often each question is made a run, with other paragraphs and the useless hop at another place."""
_BESIDE = 2
"""The paragraphs beside the one that answers a hop."""


def table(questions: Sequence[MultiHop], orders: int = ORDERS) -> Table:
    """Returns the shares of dependent hops whose first lead is right, tied, wrong or missing, and of hops that depend
    on none and have one, for each kind of useless hop."""
    rows: list[tuple[str | float | None, ...]] = []
    for useless in USELESS:
        seen: Counter[str] = Counter()
        for run, needed in runs(questions, useless, orders):
            for step in with_leads(run).steps:
                seen[judge(step, needed.get(step.id))] += 1
        depends = sum(seen[one] for one in ("right", "tied", "wrong", "none"))
        free = seen["false"] + seen["free"]
        shares = (round(seen[one] / max(1, depends), 3) for one in ("right", "tied", "wrong", "none"))
        rows.append((useless, depends, *shares, free, round(seen["false"] / max(1, free), 3)))
    columns = (
        "useless hop",
        "hops that need one",
        "right",
        "tied",
        "wrong",
        "none",
        "other hops",
        "with a lead",
    )
    return Table("led-by", "The hop that a query needs, by its words", columns, tuple(rows))


def judge(step: RetrievalStep, needed: set[str] | None) -> str:
    """Returns how right the first lead of a step is; `needed` are the ids of the steps that it needs."""
    steps = set(step.led_by[0].steps) if step.led_by else set()
    if not needed:
        return "first" if step.index == 0 else "false" if steps else "free"
    if not steps:
        return "none"
    return "right" if steps <= needed else "tied" if steps & needed else "wrong"


def runs(
    questions: Sequence[MultiHop], useless: str, orders: int
) -> Iterator[tuple[Run, dict[str, set[str]]]]:
    """Yields runs, each with the steps that a step needs, by id."""
    chance = random.Random(0)
    for _ in range(orders):
        for one in questions:
            left = one.others
            chance.shuffle(left)
            hops = []
            for number, part in enumerate(one.parts):
                read_by = [part.paragraph, *(left.pop() for _ in range(_BESIDE))]
                chance.shuffle(read_by)
                hops.append((f"part-{number}", part.query, [one.paragraphs[at] for at in read_by]))
            other = chance.choice([each for each in questions if each is not one])
            hops.insert(chance.randint(0, len(hops)), _useless(one, other, left, useless, chance))
            steps = [
                RetrievalStep(id, index=at, turn=at, query=query, passages=[Passage(text) for text in texts])
                for at, (id, query, texts) in enumerate(hops)
            ]
            needed = {
                f"part-{at}": {f"part-{number}" for number in part.needs} for at, part in enumerate(one.parts)
            }
            yield Run(question=one.question, steps=steps), needed


def _useless(
    one: MultiHop, other: MultiHop, left: list[int], kind: str, chance: random.Random
) -> tuple[str, str, list[str]]:
    asked = other.parts[0]
    if kind == USELESS[0]:
        read_by = [asked.paragraph, *chance.sample(other.others, _BESIDE)]
        return "useless", asked.query, [other.paragraphs[at] for at in read_by]
    texts = [one.paragraphs[left.pop()] for _ in range(1 + _BESIDE)]
    return "useless", asked.query if kind == USELESS[1] else f"what is {texts[0].splitlines()[0]}?", texts
