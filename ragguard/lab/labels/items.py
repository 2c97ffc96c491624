"""The items of scored runs that a person can label (is a passage relevant, how useful is it, is an answer correct), in
a useful order.

The order lets a few labels correct the judge's means as well as possible: see `metrics/prediction_powered.py`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from ragguard.errors import InvalidInput
from ragguard.facts.scores import that_count
from ragguard.records import Score, ScoredRun

METRIC_OF: Mapping[str, str] = {
    "relevance": "p_relevant",
    "answer": "answer_correct",
    "coverage": "coverage_total",
    "grade": "grade",
}
"""The kinds of items, and of each the metric that is its mean."""
Place: TypeAlias = tuple[str, str, str, int]
"""The place of an item: its kind, run id, step id and the rank of its passage from 1. An answer has "" and 0, coverage
"" and the number of the sub-question from 1."""
GRADED: tuple[int, ...] = (1, 2, 3, 4, 5)
"""The labels of a grade; those of every other kind are 1 (yes) and 0 (no)."""
EDGES = (0.1, 0.5, 0.9)
"""The judge's probabilities of yes at which strata meet: sure no, rather no, rather yes, sure yes."""
STRATA = 2 * (len(EDGES) + 1)
"""The number of strata: by how sure the judge is, each for passages that are read and for others."""
_LEAST_SPREAD = 0.25
"""The smallest standard deviation assumed for the labels of a stratum: a sure judge can still be wrong."""
_READ = 0.5
"""The probability that the model answers from a passage, from which on the passage has strata of its own."""
_LEAST = 2
"""The least number of labels of each stratum, so that its mean and variance can be estimated."""


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A passage or an answer about which a person is asked one question: is it relevant, how useful, or correct?"""

    place: Place
    query: str
    """The text that this one is judged against: the step's query for a passage, the run's question for an answer."""
    text: str
    """The text of the passage or of the answer."""
    judged: float
    """The judge's probability that the answer is yes; of a grade, 0 for 1 up to 1 for 5."""
    judge: str
    """The fingerprint of the engine that judged."""
    reads: float = 1.0
    """The probability that the model answers from the text: utility and UDCG hang on passages where it is high."""

    @property
    def judged_label(self) -> float:
        """The judge's number on the scale of the labels: a grade from 1 to 5, else the probability of yes."""
        lowest, highest = least_and_largest(self.place[0])
        return lowest + self.judged * (highest - lowest)

    @property
    def digest(self) -> str:
        """Identifies the query and the text, so that a label of another text is not taken for this item's."""
        return digest_of(self.place[0], self.query, self.text)

    @property
    def stratum(self) -> int:
        """The number of the item's stratum, by how sure the judge is and whether the model would answer from the text.
        Within a stratum labels are drawn at random."""
        return bisect_right(EDGES, self.judged) + (len(EDGES) + 1) * (self.reads >= _READ)


def least_and_largest(kind: str) -> tuple[float, float]:
    """Returns the least and the largest label of a kind of items."""
    return (GRADED[0], GRADED[-1]) if kind == "grade" else (0.0, 1.0)


def digest_of(kind: str, query: str, text: str) -> str:
    """Returns 16 hexadecimal digits that identify what a person read when labelling."""
    said = "\0".join((kind, query, text)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(said).hexdigest()[:16]


def latest(scored: ScoredRun, *names: str) -> Iterator[Score]:
    """Yields the latest score that counts of each name, step and passage; leaves out provisional ones and those of
    candidates."""
    found: dict[tuple[str, str, int], Score] = {}
    for score in that_count(scored.scores):
        if score.name in names and score.stage == "passages" and not score.provisional:
            found[score.name, score.step_id, score.position or 0] = score
    return iter(found.values())


def run_items(scored: ScoredRun, kind: str) -> Iterator[LabelItem]:
    """Yields the items of a kind in a run: each passage that was judged or graded, the answer, or each sub-question."""
    if kind == "coverage":
        yield from _coverage_items(scored)
        return
    run, steps = scored.run, {step.id: step for step in scored.run.steps}
    abstains = {(one.step_id, one.position): one.value for one in latest(scored, "p_abstain")}
    for score in latest(scored, METRIC_OF[kind]):
        if kind == "answer":
            if run.answer:
                place = ("answer", run.id, "", 0)
                yield LabelItem(place, run.question, run.answer, judged=score.value, judge=score.engine)
            continue
        step, position = steps.get(score.step_id), score.position or 0
        texts = [] if step is None else [passage.text for passage in step.retrieved]
        if step is None or not 0 < position <= len(texts) or score.label == "given":
            continue
        place, query = (kind, run.id, step.id, position), step.query or run.question
        judged, reads = score.value, 1 - abstains.get((score.step_id, score.position), 0.0)
        if kind == "grade":
            judged, reads = (score.value - GRADED[0]) / (GRADED[-1] - GRADED[0]), 1.0
        yield LabelItem(place, query, texts[position - 1], judged=judged, judge=score.engine, reads=reads)


def _coverage_items(scored: ScoredRun) -> Iterator[LabelItem]:
    """Yields an item for each sub-question of a run that has a score `coverage_total`: do the passages answer it?

    The passages are those that the model got; the judge's probability is the best of their ratings, as a share of 5.
    """
    if not any(latest(scored, "coverage_total")):
        return
    rated: dict[int, list[Score]] = defaultdict(list)
    for score in that_count(scored.scores):
        if score.name == "answerability" and score.sub_question is not None and not score.provisional:
            rated[score.sub_question].append(score)
    steps = scored.run.steps
    texts = dict.fromkeys(passage.text for step in steps for passage in step.passages)
    places = {(step.id, at): passage.text for step in steps for at, passage in enumerate(step.retrieved, 1)}
    for number, some in sorted(rated.items()):
        read = [one.value for one in some if places.get((one.step_id, one.position or 0)) in texts]
        place = ("coverage", scored.run.id, "", number + 1)
        judged = max(read, default=0.0) / 5
        yield LabelItem(place, some[0].explanation, "\n\n".join(texts), judged=judged, judge=some[0].engine)


def items_of(runs: Iterable[ScoredRun], kind: str) -> list[LabelItem]:
    """Returns all items of a kind. Raises InvalidInput if there are none."""
    if kind not in METRIC_OF:
        raise InvalidInput("--kind", kind, ", ".join(METRIC_OF))
    found = [item for scored in runs for item in run_items(scored, kind)]
    if not found:
        which = f"{METRIC_OF[kind]}{' of a judge' if kind == 'grade' else ''}"
        allowed = "scored runs: `ragguard score` gives it (by the scorers utility, coverage and grades)"
        raise InvalidInput("the store", f"no score {which}", allowed)
    return found


def in_order_of_worth(items: Sequence[LabelItem], number: int, seed: int = 0) -> list[LabelItem]:
    """Returns the `number` items to label first. Whoever stops early still has a valid stratified sample.

    Each stratum gets a share of the labels that grows with its number of items, with the judge's uncertainty about them
    (Neyman allocation), and up to twofold with the model's readiness to answer from them. Within a stratum the order is
    random and depends on the seed and the item alone.
    """
    strata: dict[int, list[LabelItem]] = defaultdict(list)
    for item in items:
        strata[item.stratum].append(item)
    weights = {
        one: max(_LEAST_SPREAD, fmean(item.judged * (1 - item.judged) for item in some) ** 0.5)
        * sum(1 + item.reads for item in some)
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
