"""Advice in an agent's loop, as the integrations follow it: retrievals, and right and wrong answers.

    python benchmarks/advice.py               51 questions to calibrate on, 45 others to measure, of each kind
    python benchmarks/advice.py --cases 12    fewer, for a look
    python benchmarks/advice.py --actions     what the actions mean alone, after a change of `distrust`; the rest of the
                                              recorded figures follows the sufficiency, and stays as it is

An agent plans its hops, reads each name with nano, searches a corpus of which it sees three new passages at a time, and
asks in other words where nothing was found. One question in five has no answer: the fact is not in the corpus. Plain
questions are those of `ragguard.world`, hard ones those of `studies.hard_world`, whose passages make up most of their
corpus. The judge is nano, or nano with noise (`studies.weak_judges`); the reader is nano.

Two ways to follow advice, both by `LoopAdviser`:
- an agent (`AdviceMiddleware`, `AdvisedFunctionAgent`) also stops by itself, once its model has an answer. It is
  calibrated on runs that end at its own stop.
- a graph or workflow of one's own (`LoopAdviser`) stops when advised, and its model answers then, or
  says that it cannot.

Beside them: fixed numbers of searches, the agent without advice, and a rule of one line that asks nothing of a judge
(2026): the agent stops once its answer repeats and the margin of its log-probability, over that of abstaining, is over
0.25.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser
from ragguard import Passage, RagGuard, RetrievalStep, Run, world
from ragguard.advice import KnownOutcome
from ragguard.advice.loop import LoopAdviser
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.metrics import exact_match
from ragguard.metrics.agreement import auc
from ragguard.records import Advice
from ragguard.runtime.limiter import in_parallel
from ragguard.scorers.question import count_tokens
from ragguard.world import Case
from ragguard.world.corpus import Corpus
from ragguard.world.facts import Fact
from ragguard.world.grammar import INVERSE, RELATIONS, THAT, question_phrasings, sentence
from studies.hard_world import hard_cases
from studies.weak_judges import weak_judge

MOST = 6
K = 3
NO = "NO-RESPONSE"
UNANSWERABLE = 0.2
PROMISES = (0.02, 0.05, 0.1)
MARGIN = 0.25
"""How much more probable than an abstention, in log-probability, an answer that repeats must be to stop the agent."""
CALIBRATION, EVALUATION, UNANSWERED = 71, 272, 273
"""The seeds of the questions."""
CASES = (51, 45, 15)
"""The number of questions that are calibrated on, of those that are measured, and of further ones without an answer."""
DRAWS = 4000
AT_ONCE = 4
BUDGET_MS = 600_000
JUDGES = (None, 0.95)
"""The judges: nano itself, and nano with noise that leaves this AUC."""
HARD_CORPUS = 100 if is_quick() else 1500
"""How many plain passages lie between those of the hard questions."""
RECORDED = Path(__file__).parent / "results" / "advice.json"
FOLLOWED = LoopAdviser(max_hops=MOST)
PROMPTS = load_prompts("nano")


@dataclass(slots=True)
class Trip:
    """Six searches of an agent for one question, whatever would have stopped it before."""

    name: str
    case: Case
    answerable: bool
    steps: list[RetrievalStep] = field(default_factory=list)
    asked_then: list[tuple[str, list[str]]] = field(default_factory=list)
    """The question that is left after each search, with the names that were read, and the plan."""
    said: list[str] = field(default_factory=list)
    """The answer that the agent would have given after each search."""
    margins: list[float] = field(default_factory=list)
    """The log-probability of each answer, less that of an abstention."""
    advice: list[Advice] = field(default_factory=list)
    """The advice after each search."""
    tokens: list[int] = field(default_factory=list)
    """The tokens that the agent's model read for each search and the answer after it."""

    @property
    def right(self) -> list[float]:
        """The correctness of the answer after each search, 1 or 0."""
        return [float(self.is_right(text)) for text in self.said]

    def is_right(self, said: str) -> bool:
        return self.answerable and any(exact_match(said, reference) for reference in self.case.references)

    @property
    def own_stop(self) -> int:
        """The number of searches after which the agent stops by itself, since its model has an answer."""
        answered = [not text.startswith(NO) for text in self.said]
        return 1 + answered.index(True) if any(answered) else MOST

    @property
    def repeat_stop(self) -> int:
        """The number of searches after which the answer is the one before it, by more than the margin."""
        for number in range(2, MOST):
            before, now = self.said[number - 2 : number]
            if now == before and not now.startswith(NO) and self.margins[number - 1] > MARGIN:
                return number
        return MOST

    def stop(self, threshold: float, *, by_itself: bool) -> int:
        """Returns after how many searches the agent stops that follows advice with this threshold."""
        for number, advice in enumerate(self.advice, 1):
            enough = advice.numbers["sufficiency"] >= threshold
            action = "answer" if enough else "continue" if advice.action == "answer" else advice.action
            followed = FOLLOWED.choice(replace(advice, action=action)).enough
            if followed or number == MOST or (by_itself and number == self.own_stop):
                return number
        raise AssertionError("a trip has an advice after each search")

    def read(self, steps: int) -> list[Passage]:
        return [passage for step in self.steps[:steps] for passage in step.passages]

    def holds_all(self, steps: int) -> bool:
        """Returns whether what was read states all facts that the question needs."""
        return all(any(states(one, as_tuple(fact)) for one in self.read(steps)) for fact in self.case.facts)

    def is_contradicted(self, steps: int) -> bool:
        """Returns whether a passage that was read says something else of a fact which the question needs."""
        said = {
            tuple(one.metadata[key] for key in ("relation", "subject", "object")) for one in self.read(steps)
        }
        return any(
            (relation, subject) == (fact.relation, fact.subject) and object_ != fact.object
            for relation, subject, object_ in said for fact in self.case.facts
        )  # fmt: skip

    def stage(self, steps: int) -> Run:
        """The run as it stood after so many searches."""
        question, plan = self.asked_then[steps - 1]
        return Run(self.name, question, steps=self.steps[:steps], status="open", sub_questions=plan)


def as_tuple(fact: Fact) -> tuple[str, str, str]:
    return fact.relation, fact.subject, fact.object


def plan_of(case: Case, names: Sequence[str]) -> list[str]:
    """The question of each hop, with the names that were read, and "that person" for one that was not."""
    found = []
    for hop, (fact, query) in enumerate(zip(case.facts, case.sub_questions, strict=True)):
        name = names[hop] if hop < len(names) else THAT[RELATIONS[fact.relation].subject]
        found.append(query.replace(fact.subject, name))
    return found


def question_of(case: Case, names: Sequence[str]) -> str:
    """Returns the question that is left once some names were read: it is asked about the last of them."""
    if len(names) == 1:
        return case.question
    left = case.facts[len(names) - 1 :]
    if len(left) == 1:
        return plan_of(case, names)[-1]
    first, second = (RELATIONS[fact.relation] for fact in left)
    opening, core = question_phrasings([first, second], "heldout")[0]
    return sentence(opening, core, names[-1], end="?")


def query_of(case: Case, hop: int, name: str, attempt: int) -> str:
    """How the agent asks for a hop about a name, in other words at each attempt."""
    fact = case.facts[hop]
    ways = question_phrasings([RELATIONS[fact.relation]], "heldout")
    opening, core = ways[(len(case.question) + attempt) % len(ways)]
    return sentence(opening, core, name, end="?")


def hidden(case: Case, rng: random.Random, share: float) -> tuple[str, str, str] | None:
    """The fact that the corpus does not have, which makes a question unanswerable; None for one that is answerable."""
    if rng.random() >= share:
        return None
    fact = case.facts[rng.randrange(case.hops)]
    return fact.relation, fact.subject, fact.object


def states(passage: Passage, fact: tuple[str, str, str] | None) -> bool:
    """Returns whether a passage states a fact, in either direction; a hard passage has several, and may hedge one."""
    if fact is None:
        return False
    relation, subject, object_ = fact
    same = (fact, (INVERSE.get(relation, relation), object_, subject))
    known = passage.metadata
    own = tuple(known[name] for name in ("relation", "subject", "object"))
    return own in same or any(tuple(one) in same for one in known.get("facts", ()))


def search(corpus: Corpus, query: str, seen: set[str], missing: tuple[str, str, str] | None) -> list[Passage]:
    """The best passages that the agent has not read yet."""
    found = []
    for at, score in corpus.search(query, K + len(seen) + 24):
        passage = corpus.passages[at]
        if passage.text not in seen and not states(passage, missing):
            found.append(Passage(passage.text, passage.id, score, dict(passage.metadata)))
    return found[:K]


async def read(engine: Engine, question: str, texts: Sequence[str]) -> tuple[str, float]:
    """Returns the answer that nano gives from the texts, or NO-RESPONSE, and by how much its log-probability is over
    that of NO-RESPONSE."""
    prompt = PROMPTS.render("abstention", texts, query=question)
    ((answer,),) = await engine.sample([prompt], n=1, max_tokens=8, temperature=0.0)
    abstains = (await engine.label_probs([prompt], [NO])).p[0, 0]
    return answer.text, sum(answer.logprobs) - float(np.log(max(abstains, 1e-12)))


async def travel(engine: Engine, corpus: Corpus, case: Case, seed: str, unanswerable: float) -> Trip:
    """Returns the trip of an agent that searches six times.

    It asks hop by hop with the names that its model reads, and in other words where the model finds nothing.
    """
    missing = hidden(case, random.Random(seed), unanswerable)
    trip = Trip(f"trip {seed}", case, missing is None)
    names, attempt = [case.facts[0].subject], 0
    seen: set[str] = set()
    notes: list[str] = []  # what was read for the hop at hand
    for number in range(MOST):
        hop = len(names) - 1
        query = query_of(case, hop, names[-1], attempt)
        passages = search(corpus, query, seen, missing)
        seen |= {passage.text for passage in passages}
        notes += [passage.text for passage in passages]
        trip.steps.append(
            RetrievalStep(f"{seed}-{number}", trip.name, number, number, query=query, passages=passages)
        )
        found, margin = await read(engine, query, notes)
        trip.margins.append(margin)
        trip.tokens.append(sum(map(count_tokens, [query, *notes])))
        trip.said.append(found if hop + 1 == case.hops else NO)
        attempt += 1
        if not found.startswith(NO) and hop + 1 < case.hops:
            names, attempt, notes = [*names, found], 0, []
        trip.asked_then.append((question_of(case, names), plan_of(case, names)))
    return trip


async def advised(rg: RagGuard, trip: Trip) -> Trip:
    """Returns the trip with the advice after each search."""
    told = [await rg.advice.aadvise(trip.stage(number), BUDGET_MS) for number in range(1, MOST + 1)]
    if failed := [one for one in told if one.status != "judged"]:
        raise SystemExit(f"advice failed: {failed[0].reasons}")
    return replace(trip, advice=told)


async def trips(
    engine: Engine, kind: str, n: int, seed: int, unanswerable: float = UNANSWERABLE
) -> list[Trip]:
    """Makes the trips of `n` questions of one, two and three hops."""
    make = world.cases if kind == "plain" else hard_cases
    cases = [
        (case, f"{seed} {hops} {at}")
        for hops in (1, 2, 3)
        for at, case in enumerate(make(-(-n // 3), seed=seed, hops=hops))
    ]
    if kind == "plain":
        corpus = Corpus(world.default_world())
    else:
        texts = {passage.text: passage for case, _ in cases for passage in case.pool()}
        corpus = Corpus(world.default_world(), HARD_CORPUS, extra=list(texts.values()))
    return await in_parallel(
        [partial(travel, engine, corpus, case, name, unanswerable) for case, name in cases], AT_ONCE
    )


def stops_of(made: Sequence[Trip], thresholds: Mapping[str, float]) -> dict[str, list[int]]:
    """Returns after how many searches each trip stops, for each way to stop."""
    ways = {f"{budget} searches": [budget] * len(made) for budget in range(1, MOST + 1)}
    ways["agent, no advice"] = [trip.own_stop for trip in made]
    ways["answer repeats"] = [trip.repeat_stop for trip in made]
    for name, threshold in thresholds.items():
        by_itself = name.startswith("agent")
        ways[name] = [trip.stop(threshold, by_itself=by_itself) for trip in made]
    return ways


def summary(made: Sequence[Trip], stops: Sequence[int], beside: Sequence[int]) -> dict[str, Any]:
    """Returns the figures of one way to stop, and the paired differences from another one with their intervals."""
    said = [trip.said[stop - 1] for trip, stop in zip(made, stops, strict=True)]
    right = np.array([trip.is_right(text) for trip, text in zip(made, said, strict=True)], dtype=np.float64)
    wrong = np.array([not text.startswith(NO) for text in said]) - right
    theirs = np.array([trip.right[stop - 1] for trip, stop in zip(made, beside, strict=True)])
    drawn = np.random.default_rng(7).integers(0, len(made), (DRAWS, len(made)))
    mine, other = np.array(stops, dtype=np.float64), np.array(beside, dtype=np.float64)

    def interval(values: NDArray[np.float64]) -> list[float]:
        return [round(float(edge), 3) for edge in np.percentile(values, [2.5, 97.5])]

    return {
        "retrievals": round(float(mine.mean()), 2),
        "right": round(float(right.mean()), 3),
        "wrong": round(float(wrong.mean()), 3),
        "saved": round(1 - float(mine.mean() / other.mean()), 3),
        "saved_95": interval(1 - mine[drawn].mean(1) / other[drawn].mean(1)),
        "right_gained": round(float((right - theirs).mean()), 3),
        "right_gained_95": interval((right - theirs)[drawn].mean(1)),
    }


def share(flags: Sequence[bool]) -> list[float | int | None]:
    """Returns a share, and of how many."""
    return [round(sum(flags) / len(flags), 3) if flags else None, len(flags)]


def stage_figures(made: Sequence[Trip]) -> dict[str, Any]:
    """Returns what the actions without a calibration mean, over all searches of all trips."""
    stages = [(trip, at, advice) for trip in made for at, advice in enumerate(trip.advice, 1)]
    whole = [(trip, at, advice) for trip, at, advice in stages if trip.holds_all(at)]
    lied = [one for trip, at, one in whole if trip.is_contradicted(at)]
    figures: dict[str, Any] = {
        f"answer, {hops} hops: all was read": share(
            [
                trip.holds_all(at)
                for trip, at, one in stages
                if one.action == "answer" and trip.case.hops == hops
            ]
        )
        for hops in (1, 2, 3)
    }
    figures["answer: is right"] = share(
        [trip.right[at - 1] > 0 for trip, at, one in stages if one.action == "answer"]
    )
    figures["all was read: distrust"] = share([one.action == "distrust" for _, _, one in whole])
    figures["all was read, nothing contradicts it: distrust"] = share(
        [one.action == "distrust" for trip, at, one in whole if not trip.is_contradicted(at)]
    )
    figures["all was read, a passage contradicts it: distrust"] = share(
        [one.action == "distrust" for one in lied]
    )
    for name in ("sufficiency", "p_answer"):
        values = [one.numbers[name] for _, _, one in stages]
        figures[f"AUC of {name} for all was read"] = round(
            auc(values, [trip.holds_all(at) for trip, at, _ in stages]), 3
        )
    figures["tokens asked, beside those read"] = round(
        sum(one.usage.prompt_tokens + one.usage.output_tokens for _, _, one in stages)
        / sum(sum(trip.tokens) for trip in made), 2
    )  # fmt: skip
    return figures


def outcomes_of(known: Sequence[Trip], *, by_itself: bool) -> list[KnownOutcome]:
    """Returns the runs to calibrate on. Those of an agent that stops `by_itself` end where it stops, if its answers
    there are on average at least as right as at the end."""
    stops = [trip.own_stop for trip in known]
    own = sum(trip.right[stop - 1] for trip, stop in zip(known, stops, strict=True))
    if not by_itself or own < sum(trip.right[-1] for trip in known):
        stops = [MOST] * len(known)
    return [
        KnownOutcome(trip.stage(stop), trip.right[:stop], [trip.stage(at) for at in range(1, stop + 1)])
        for trip, stop in zip(known, stops, strict=True)
    ]


async def measure(kind: str, strength: float | None, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Calibrates on trips of some seeds, and compares the ways to stop on those of other ones."""
    engine = connect("nano")
    judge = engine if strength is None else await weak_judge(engine, strength, seed=CALIBRATION)
    async with RagGuard(engine, judge=judge, store=None, scorers=()) as rg:
        known = await trips(engine, kind, sizes[0], CALIBRATION)
        asked = [
            await in_parallel([partial(advised, rg, trip) for trip in some], AT_ONCE)
            for some in (
                await trips(engine, kind, sizes[1], EVALUATION),
                await trips(engine, kind, sizes[2], UNANSWERED, 1.0),
            )
        ]
        made, further = asked
        thresholds: dict[str, float] = {}
        for way in ("agent", "graph"):
            for promise in (one for one in PROMISES if len(known) >= round(1 / one) - 1):
                found = await rg.advice.acalibrate(outcomes_of(known, by_itself=way == "agent"), promise)
                thresholds[f"{way}, advised, {promise:g}"] = found.threshold
    unanswerable = [trip for trip in (*made, *further) if not trip.answerable]
    ways, guessed = stops_of(made, thresholds), stops_of(unanswerable, thresholds)
    own = "agent, no advice"
    figures = {name: summary(made, stops, ways[own]) for name, stops in ways.items()}
    for name, stops in guessed.items():
        figures[name]["wrong_on_unanswerable"] = summary(unanswerable, stops, guessed[own])["wrong"]
    return {
        "calibrated_on": len(known), "measured_on": len(made), "unanswerable": len(unanswerable),
        "thresholds": thresholds, "ways": figures, "actions": stage_figures(made),
    }  # fmt: skip


async def measure_actions(kind: str, strength: float | None, cases: int) -> dict[str, Any]:
    """Returns what the actions without a calibration mean, on the trips that `measure` compares ways to stop on."""
    engine = connect("nano")
    judge = engine if strength is None else await weak_judge(engine, strength, seed=CALIBRATION)
    async with RagGuard(engine, judge=judge, store=None, scorers=()) as rg:
        made = await trips(engine, kind, cases, EVALUATION)
        return stage_figures(await in_parallel([partial(advised, rg, trip) for trip in made], AT_ONCE))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--calibration", type=int, default=CASES[0], help="questions to calibrate on")
    options.add_argument("--cases", type=int, default=CASES[1], help="questions to measure")
    options.add_argument(
        "--unanswered", type=int, default=CASES[2], help="further questions without an answer"
    )
    options.add_argument(
        "--actions", action="store_true", help="measure what the actions mean, and nothing else"
    )
    args = parse(options, calibration=9, cases=2, unanswered=1)
    sizes = (args.calibration, args.cases, args.unanswered)
    known = json.loads(RECORDED.read_text("utf-8")) if args.actions else {}
    ways = {"ways_measured": known.get("ways_measured", known["measured"])} if args.actions else {}
    found: dict[str, Any] = known.get("figures", {})
    for strength in JUDGES:
        for kind in ("plain", "hard"):
            name = f"{kind}, {'nano' if strength is None else f'AUC {strength:g}'}"
            if args.actions:
                found[name]["actions"] = asyncio.run(measure_actions(kind, strength, args.cases))
            else:
                found[name] = asyncio.run(measure(kind, strength, sizes))
            show(name, found[name])
            print(
                record("advice", {**ways, "figures": found, "processor_seconds": round(time.process_time())}),
                flush=True,
            )


def show(name: str, found: Mapping[str, Any]) -> None:
    """Prints one line for each way to stop."""
    for way, one in found["ways"].items():
        print(
            f"{name:16} {way:24} {one['retrievals']:5.2f} retrievals  right {one['right']:.3f}  "
            f"wrong {one['wrong']:.3f}, on unanswerable {one['wrong_on_unanswerable']:.3f}  "
            f"saved {one['saved']:+.3f} {one['saved_95']}  right {one['right_gained']:+.3f} {one['right_gained_95']}"
        )
    for what, value in found["actions"].items():
        print(f"{name:16} {what}: {value}")


if __name__ == "__main__":
    main()
