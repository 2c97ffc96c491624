"""Items of scored runs that can be labelled, and the order in which labels are worth most."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ragguard.errors import InvalidInput
from ragguard.records import RetrievalStep, Score, ScoredRun

Kind = Literal["relevance", "answer"]
KINDS: tuple[str, ...] = get_args(Kind)
Place: TypeAlias = tuple[str, str, str, int]
"""The kind of an item, its run and step, and the rank of its passage."""
EDGES = (0.1, 0.5, 0.9)
"""The bounds of the judge's probability between the strata: sure of no, rather no, rather yes, sure of yes."""
_LEAST_SPREAD = 0.25
"""The least spread that is assumed of the labels of a stratum, as a judge may be sure and wrong."""
_LEAST = 3
"""The fewest labels of a stratum, so that it has a mean and a variance of its own."""


@dataclass(frozen=True, slots=True)
class LabelItem:
    """One thing that a person can say yes or no to."""

    place: Place
    query: str
    """The query, or the question of the run."""
    text: str
    """The passage, or the answer."""
    judged: float
    """The judge's probability of yes."""
    judge: str
    """The fingerprint of the judge."""

    @property
    def digest(self) -> str:
        """A digest of what the person reads."""
        return digest_of(self.place[0], self.query, self.text)

    @property
    def stratum(self) -> int:
        """The stratum in which labels are drawn at random."""
        return bisect_right(EDGES, self.judged)


def digest_of(kind: str, query: str, text: str) -> str:
    """Returns the digest of what a person reads to give a label."""
    said = "\0".join((kind, query, text))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def latest(scored: ScoredRun, *names: str) -> Iterator[Score]:
    """Yields the latest score of each name, step and passage that is about what the model got."""
    found: dict[tuple[str, str, int], Score] = {}
    for score in scored.scores:
        if score.name in names and score.stage == "passages" and not score.provisional:
            found[score.name, score.step_id, score.position or 0] = score
    return iter(found.values())


def passage_items(scored: ScoredRun) -> Iterator[LabelItem]:
    """Yields the judged passages of a run."""
    steps = {step.id: step for step in scored.run.steps}
    for score in latest(scored, "p_relevant"):
        step, position = steps.get(score.step_id), score.position or 0
        passages = [] if step is None else _candidates(step)
        if step is not None and 0 < position <= len(passages):
            place = "relevance", scored.run.id, step.id, position
            query = step.query or scored.run.question
            yield LabelItem(place, query, passages[position - 1], judged=score.value, judge=score.engine)


def answer_items(scored: ScoredRun) -> Iterator[LabelItem]:
    """Yields the judged answer of a run."""
    run = scored.run
    for score in latest(scored, "answer_correct"):
        if run.answer:
            yield LabelItem(
                ("answer", run.id, "", 0), run.question, run.answer, judged=score.value, judge=score.engine
            )


def items_of(runs: Iterable[ScoredRun], kind: str) -> list[LabelItem]:
    """Returns all items of a kind; raises InvalidInput where there are none."""
    if kind not in KINDS:
        raise InvalidInput("--kind", kind, ", ".join(KINDS))
    read = passage_items if kind == "relevance" else answer_items
    found = [item for scored in runs for item in read(scored)]
    if not found:
        name = "p_relevant (scorer `utility`)" if kind == "relevance" else "answer_correct"
        raise InvalidInput("the store", f"no score {name}", "scored runs: `ragguard score` gives it")
    return found


def in_order_of_worth(items: Sequence[LabelItem], number: int, seed: int = 0) -> list[LabelItem]:
    """Returns the `number` items whose labels are worth most, in an order of which every beginning is a fair draw.

    Labels are shared out over the strata by how many items each has and how unsure the judge is of them. Within a
    stratum the order is random, decided by the seed and the item alone.
    """
    strata: dict[int, list[LabelItem]] = defaultdict(list)
    for item in items:
        strata[item.stratum].append(item)
    weights = {
        one: len(some)
        * max(_LEAST_SPREAD, (sum(item.judged * (1 - item.judged) for item in some) / len(some)) ** 0.5)
        for one, some in strata.items()
    }
    whole = sum(weights.values())
    ranked: list[tuple[float, float, LabelItem]] = []
    for one, some in strata.items():
        share = max(number * weights[one] / whole, min(_LEAST, number / len(strata)))
        unsure = abs(sum(item.judged for item in some) / len(some) - 0.5)
        for rank, item in enumerate(sorted(some, key=lambda item: _draw(item, seed))):
            ranked.append(((rank + 0.5) / share, unsure, item))
    ranked.sort(key=lambda one: one[:2])
    return [item for _, _, item in ranked[:number]]


def _draw(item: LabelItem, seed: int) -> bytes:
    return hashlib.sha256(repr((seed, item.place)).encode("utf-8", "surrogatepass")).digest()


def _candidates(step: RetrievalStep) -> list[str]:
    return [passage.text for passage in (step.candidates or step.passages)]
