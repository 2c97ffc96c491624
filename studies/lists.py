"""One prompt a list beside one prompt a passage: which passage answers, and whether a list suffices.

A judge of a whole list is asked which passage answers, by its number: one prefill gives each passage a probability,
as the label of its number. Beside it stand today's questions about each passage alone, and the passage in which the
reader's answer from the whole list stands. Lists have eight passages, one of which answers.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ragguard import world
from ragguard.analysis.tables import Cell, Table
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.lab.validation.contexts import Progress, silent
from ragguard.metrics.agreement import auc
from ragguard.metrics.answers import query_gain
from ragguard.metrics.arrays import Floats
from ragguard.scorers.asker import Models
from ragguard.scorers.exam.cases import exam_cases
from ragguard.scorers.probes import abstention, query_likelihood, relevance
from ragguard.scorers.question import LabelQuestion, Question, SampleQuestion
from ragguard.text.language import normalise
from ragguard.world import Case
from studies.hard_world import hard_cases
from studies.intervals import auc_over_questions, of_mean
from studies.likelihood import known_questions

SIZE = 8
NUMBERS = tuple(str(place) for place in range(1, SIZE + 1))
_NONE = "0"
_PLAIN, _HARD = ("same_relation", "same_subject"), ("same_relation", "near_name")
# Put in the place of a set's relevance: the same frame, with the number before the text where a frame has none.
_WHICH = {
    "default": (
        "{passages}\n\n<query>\n{query}\n</query>\nTask: which document contains information that answers the query? "
        "Reply with its number, or with 0 if none does.",
        None,
        (*NUMBERS, _NONE),
    ),
    "nano": ("{passages}\nQuestion: {query}\nRelevant:", "{number} - {text}", NUMBERS),
}
_EACH, _GAIN = "each passage: is it relevant?", "each passage: likelihood of the query"
_LIST, _TURNED = "list: which passage?", "list: which passage?, both orders"
_ANSWER = "list: where the reader's answer stands"
_LIKELIEST, _LIKELIEST_GAIN = (
    "each passage: the most relevant",
    "each passage: the best likelihood of the query",
)
_RELEVANT, _READS = "list: is it relevant?", "list: does the reader answer?"
_ALL_GAIN, _SOME = "list: likelihood of the query", "list: which passage?, not none"


@dataclass(frozen=True, slots=True)
class List:
    """A question with its passages, one of which answers it."""

    question: str
    texts: tuple[str, ...]
    gold: int
    hard: frozenset[int]
    """The places of the passages that are hard to tell from the one that answers."""
    other: str
    """A passage about something else, which takes the gold passage's place in the list that does not suffice."""

    @property
    def without(self) -> tuple[str, ...]:
        return tuple(self.other if at == self.gold else text for at, text in enumerate(self.texts))


@dataclass(slots=True)
class Cost:
    """The cost of asking about lists in one way."""

    prompts: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """The processor's time in this process, which other work on the machine does not lengthen."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.prompts + other.prompts, self.tokens + other.tokens, self.seconds + other.seconds)


@dataclass(slots=True)
class Found:
    """The answers of one engine about lists of one kind, in each way."""

    passages: dict[str, list[Floats]] = field(default_factory=dict)
    """The scores of the passages of each list, by way."""
    suffices: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """The scores of each list with the passage that answers and of the same list without it, by way."""
    costs: dict[tuple[str, int], Cost] = field(default_factory=dict)
    """The costs by way and place of the list that has the passage; of answers from a cache there is none."""
    known: set[tuple[str, int]] = field(default_factory=set)
    """The ways and places of which a cache answered a part."""


async def study(
    engine: Engine,
    *,
    questions: int = 200,
    seed: int = 0,
    progress: Progress = silent,
    judge: Engine | None = None,
) -> list[Table]:
    """Makes the tables, over as many lists of each kind: of nano's world for nano, of prose for any other engine.
    `judge` is asked in the engine's place."""
    asked = connect(engine) if judge is None else connect(judge)
    prompts = load_prompts((await asked.info()).prompts)
    kinds = world_lists(questions, seed) if prompts.name == "nano" else prose_lists(questions)
    found = {}
    for name, lists in kinds.items():
        found[name] = await ask(asked, prompts, lists, lambda done, of, name=name: progress(name, done, of))  # type: ignore[misc]
    return [_passages(found, kinds, seed), _suffices(found, seed)]


def world_lists(questions: int, seed: int) -> dict[str, list[List]]:
    """Returns lists of nano's world, by its name."""
    return {
        "plain world": _of_cases(world.cases(questions, seed=seed), _PLAIN),
        "harder world": _of_cases(hard_cases(questions, seed), _HARD),
    }


def prose_lists(questions: int) -> dict[str, list[List]]:
    """Returns lists of the examination's prose and of passages about known facts. Hard are the passages of the same
    kind about something else and those about the subject without the answer; the rest answer other questions."""
    found = []
    for asked in (exam_cases().questions, known_questions()):
        for at, one in enumerate(asked):
            others = [asked[(at + step) % len(asked)].gold for step in range(1, SIZE - 1)]
            made = _shuffled(one.question, [one.gold], [one.near, one.partial], others)
            found.append(made)
    return {"prose": found[:questions]}


def _of_cases(cases: Sequence[Case], hard: Sequence[str]) -> list[List]:
    found = []
    for at, case in enumerate(cases):
        kinds = {one.text: one.metadata["kind"] for one in case.distractors}
        near = [text for text, kind in kinds.items() if kind in hard]
        rest = [text for text, kind in kinds.items() if kind in ("same_type", "unrelated")]
        other = cases[(at + 1) % len(cases)].gold[0].text
        found.append(
            _shuffled(case.question, [case.gold[0].text], near, [*rest[: SIZE - 1 - len(near)], other])
        )
    return found


def _shuffled(question: str, gold: Sequence[str], hard: Sequence[str], others: Sequence[str]) -> List:
    """Returns a list in chance order. The last of the others stands in no list with the answer."""
    texts = [*gold, *hard, *others[:-1]]
    random.Random(f"lists {question}").shuffle(texts)
    return List(
        question, tuple(texts), texts.index(gold[0]), frozenset(map(texts.index, hard)), others[-1]
    )  # fmt: skip


async def ask(
    engine: Engine, prompts: PromptSet, lists: Sequence[List], tell: Callable[[int, int], None]
) -> Found:
    """Asks about each list in each way that the prompts have."""
    models, found = Models(engine, engine), Found()
    which = _which(prompts)

    async def answers(questions: Sequence[Question], *ways: str) -> list[Any]:
        began = time.process_time()
        said: list[Any] = list(await models.respond(questions))
        spent = time.process_time() - began
        tokens = sum(one.usage.prompt_tokens + one.usage.output_tokens for one in said)
        for way in ways:
            found.costs[way, done] = found.costs.get((way, done), Cost()) + Cost(len(said), tokens, spent)
            if any(one.usage.cached for one in said):
                found.known.add((way, done))
        return said

    def add(way: str, scores: Sequence[float]) -> None:
        found.passages.setdefault(way, []).append(np.array(scores))

    async def relevant(question: str, texts: Sequence[str], *ways: str) -> list[float]:
        asked = [relevance(prompts, question, text) for text in texts]
        return [_share(one.p) for one in await answers(asked, *ways)]

    async def gains(question: str, texts: Sequence[str], *ways: str) -> list[float]:
        asked = [
            query_likelihood(prompts, question),
            *(query_likelihood(prompts, question, text) for text in texts),
        ]
        alone, *given = await answers(asked, *ways)
        return [query_gain(one.logprobs, alone.logprobs) for one in given]

    async def numbers(question: str, texts: Sequence[str], *ways: str) -> Floats:
        prompt = which.render("relevance", texts, query=question)
        (said,) = await answers([LabelQuestion(prompt, which.labels("relevance"))], *ways)
        shares: Floats = np.array(said.p) / max(sum(said.p), 1e-300)
        return shares

    for done, one in enumerate(lists):
        tell(done, len(lists))
        each = await relevant(one.question, one.texts, _EACH, _LIKELIEST)
        add(_EACH, each)
        both: dict[str, list[tuple[float, float]]] = {}
        (other,) = await relevant(one.question, [one.other])
        both[_LIKELIEST] = [(max(each), max(*_but(each, one.gold), other))]
        if "query" in prompts.templates:
            each = await gains(one.question, one.texts, _GAIN, _LIKELIEST_GAIN)
            add(_GAIN, each)
            (other,) = await gains(one.question, [one.other])
            both[_LIKELIEST_GAIN] = [(max(each), max(*_but(each, one.gold), other))]
        forward = await numbers(one.question, one.texts, _LIST, _TURNED, _SOME)
        back = await numbers(one.question, one.texts[::-1], _TURNED)
        add(_LIST, forward[:SIZE].tolist())
        add(_TURNED, (forward[:SIZE] + back[:SIZE][::-1]).tolist())
        if len(forward) > SIZE:
            both[_SOME] = [(1 - forward[SIZE], 1 - (await numbers(one.question, one.without))[SIZE])]
        reads = abstention(prompts, one.question, *one.texts)
        (said,) = await answers([SampleQuestion(reads.prompt, 1, 12, 0.0, seed=0)], _ANSWER)
        add(_ANSWER, _held(said.samples[0].text, one.texts))
        for way, asked, worth in (
            (_RELEVANT, relevance, lambda said: _share(said.p)),
            (_READS, abstention, lambda said: 1 - said.p[0]),
        ):
            (full,) = await answers([asked(prompts, one.question, *one.texts)], way)
            (less,) = await answers([asked(prompts, one.question, *one.without)])
            both[way] = [(worth(full), worth(less))]
        if "query" in prompts.templates:
            pair = [
                float(np.mean(told.logprobs))
                for texts, ways in ((one.texts, (_ALL_GAIN,)), (one.without, ()))
                for told in await answers([query_likelihood(prompts, one.question, *texts)], *ways)
            ]
            both[_ALL_GAIN] = [(pair[0], pair[1])]
        for way, scores in both.items():
            found.suffices.setdefault(way, []).extend(scores)
    tell(len(lists), len(lists))
    return found


def _which(prompts: PromptSet) -> PromptSet:
    user, passage, labels = _WHICH[prompts.name]
    usual = prompts.templates["relevance"]
    made = replace(usual, user=user, passage=passage or usual.passage, labels=labels, criteria=())
    return PromptSet(f"{prompts.name}, which", "1", {"relevance": made})


def _share(p: Sequence[float]) -> float:
    return p[0] / max(sum(p), 1e-300)


def _but(values: Sequence[float], place: int) -> list[float]:
    return [value for at, value in enumerate(values) if at != place]


def _held(answer: str, texts: Sequence[str]) -> list[float]:
    """Returns 1 for each passage in which the answer stands, else 0."""
    words = f" {normalise(answer)} "
    return [float(bool(words.strip()) and words in f" {normalise(text)} ") for text in texts]


def _passages(found: dict[str, Found], kinds: dict[str, list[List]], seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, lists in kinds.items():
        for way, scores in found[name].passages.items():
            good = np.array([one[row.gold] for one, row in zip(scores, lists, strict=True)])
            bad = [one[sorted(row.hard)] for one, row in zip(scores, lists, strict=True)]
            owners = np.concatenate(
                [np.arange(len(lists)), np.repeat(np.arange(len(lists)), list(map(len, bad)))]
            )
            values = np.concatenate([good, *bad])
            truth = np.arange(len(values)) < len(lists)
            within = np.array(
                [auc([one, *some], [1, *[0] * len(some)]) for one, some in zip(good, bad, strict=True)]
            )
            first = [
                float(np.argmax(one) == row.gold and one.max() > 0)
                for one, row in zip(scores, lists, strict=True)
            ]
            rows.append((
                name, way, *auc_over_questions(values, truth, owners, seed),
                float(within.mean()), *of_mean(within, seed), 100 * float(np.mean(first)),
                *_cost(found[name], way), len(lists),
            ))  # fmt: skip
    return Table(
        "lists-passages", "Which passage answers: gold against hard distractors",
        ("lists", "asked", "AUC", "low", "high", "AUC within lists", "low", "high", "gold first, %", "prompts a list",
         "tokens a list", "processor ms a list", "number of lists"), tuple(rows),
        notes=(
            f"Lists of {SIZE} passages in chance order, one of them gold. Each list has two hard distractors. "
            "Plain world: another subject's fact, and another fact of the subject. Harder world: another "
            "subject's fact, and that of a near name. Prose: a passage of the same kind about something else, and "
            "one about the subject without the answer. AUC: over all lists, which a threshold needs, and within "
            "each. Intervals: draws of whole lists.",
            "Both orders: the mean of the list and of the reversed list, two prompts. Processor time of this "
            "process, one list at a time; lists that a cache answered in part do not count in the costs.",
        ),
    )  # fmt: skip


def _suffices(found: dict[str, Found], seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, one in found.items():
        for way, pairs in one.suffices.items():
            table = np.array(pairs)
            owners = np.repeat(np.arange(len(table)), 2)
            values, truth = table.ravel(), np.tile([1, 0], len(table))
            rows.append((
                name, way, *auc_over_questions(values, truth, owners, seed),
                100 * float(np.mean(table[:, 0] > table[:, 1])), *_cost(one, way),
            ))  # fmt: skip
    return Table(
        "lists-sufficient", "Does the list suffice: with the passage that answers against without it",
        ("lists", "asked", "AUC", "low", "high", "with it higher, %", "prompts a list", "tokens a list",
         "processor ms a list"), tuple(rows),
        notes=(
            "Each list is used twice. The second time a passage that answers another question replaces the one "
            "that answers. Of each passage's questions the largest number counts.",
        ),
    )  # fmt: skip


def _cost(found: Found, way: str) -> tuple[float, ...]:
    """Returns the means of prompts, tokens and milliseconds over the lists that were asked about in this run."""
    costs = [cost for key, cost in found.costs.items() if key[0] == way and key not in found.known]
    table = np.array([(one.prompts, one.tokens, 1000 * one.seconds) for one in costs]).reshape(-1, 3)
    prompts, tokens, spent = map(float, table.mean(axis=0)) if costs else (math.nan,) * 3
    return prompts, round(tokens) if costs else tokens, spent
