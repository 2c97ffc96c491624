"""The items of scored runs that a person can label (is a passage relevant, is an answer correct), in a useful order.

The order lets a few labels correct the judge's means as well as possible: see `metrics/prediction_powered.py`.
"""

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
"""The place of an item: its kind, run id, step id and the rank of its passage from 1; "" and 0 for an answer."""
EDGES = (0.1, 0.5, 0.9)
"""The judge's probabilities of yes at which strata meet: sure no, rather no, rather yes, sure yes."""
_LEAST_SPREAD = 0.25
"""The smallest standard deviation assumed for the labels of a stratum: a sure judge can still be wrong."""
_LEAST = 3
"""The least number of labels of each stratum, so that its mean and variance can be estimated."""


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A passage or an answer about which a person is asked one question: is it relevant, or is it correct?"""

    place: Place
    query: str
    """The text that this one is judged against: the step's query for a passage, the run's question for an answer."""
    text: str
    """The text of the passage or of the answer."""
    judged: float
    """The judge's probability that the answer is yes."""
    judge: str
    """The fingerprint of the engine that judged."""

    @property
    def digest(self) -> str:
        """Identifies the query and the text, so that a label of another text is not taken for this item's."""
        return digest_of(self.place[0], self.query, self.text)

    @property
    def stratum(self) -> int:
        """The number of the item's stratum, by how sure the judge is. Within a stratum labels are drawn at random."""
        return bisect_right(EDGES, self.judged)


def digest_of(kind: str, query: str, text: str) -> str:
    """Returns 16 hexadecimal digits that identify what a person read when labelling."""
    said = "\0".join((kind, query, text))
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def latest(scored: ScoredRun, *names: str) -> Iterator[Score]:
    """Yields the latest score of each name, step and passage; leaves out provisional ones and those of candidates."""
    found: dict[tuple[str, str, int], Score] = {}
    for score in scored.scores:
        if score.name in names and score.stage == "passages" and not score.provisional:
            found[score.name, score.step_id, score.position or 0] = score
    return iter(found.values())


def passage_items(scored: ScoredRun) -> Iterator[LabelItem]:
    """Yields an item for each passage of a run that has a score `p_relevant`."""
    steps = {step.id: step for step in scored.run.steps}
    for score in latest(scored, "p_relevant"):
        step, position = steps.get(score.step_id), score.position or 0
        passages = [] if step is None else _candidates(step)
        if step is not None and 0 < position <= len(passages):
            place = "relevance", scored.run.id, step.id, position
            query = step.query or scored.run.question
            yield LabelItem(place, query, passages[position - 1], judged=score.value, judge=score.engine)


def answer_items(scored: ScoredRun) -> Iterator[LabelItem]:
    """Yields an item for the answer of a run if it has a score `answer_correct`."""
    run = scored.run
    for score in latest(scored, "answer_correct"):
        if run.answer:
            yield LabelItem(
                ("answer", run.id, "", 0), run.question, run.answer, judged=score.value, judge=score.engine
            )


def items_of(runs: Iterable[ScoredRun], kind: str) -> list[LabelItem]:
    """Returns all items of a kind ("relevance" or "answer"). Raises InvalidInput if there are none."""
    if kind not in KINDS:
        raise InvalidInput("--kind", kind, ", ".join(KINDS))
    read = passage_items if kind == "relevance" else answer_items
    found = [item for scored in runs for item in read(scored)]
    if not found:
        name = "p_relevant (scorer `utility`)" if kind == "relevance" else "answer_correct"
        raise InvalidInput("the store", f"no score {name}", "scored runs: `ragguard score` gives it")
    return found


def in_order_of_worth(items: Sequence[LabelItem], number: int, seed: int = 0) -> list[LabelItem]:
    """Returns the `number` items to label first. Whoever stops early still has a valid stratified sample.

    Each stratum gets a share of the labels that grows with its number of items and with the judge's uncertainty about
    them (Neyman allocation). Within a stratum the order is random and depends on the seed and the item alone.
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
