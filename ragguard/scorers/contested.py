"""Contested coverage: the share of sub-questions to which passages give answers that contradict each other.

A false passage in good style is relevant and answers its sub-question, so that no judgement of single passages finds
it; only a passage that contradicts it shows the conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np

from ragguard.engines.entailer import Pair
from ragguard.metrics import subquestions as measures
from ragguard.metrics.answers import is_abstention
from ragguard.records import Result, Usage
from ragguard.runtime.arguments import number_between, share
from ragguard.scorers.coverage import Ratings, find_sub_questions, given_sub_questions
from ragguard.scorers.meanings import relation
from ragguard.scorers.probes import read_relevance, relevance
from ragguard.scorers.question import (
    Ask,
    EntailAnswer,
    EntailQuestion,
    SampleAnswer,
    SampleQuestion,
    answered,
)
from ragguard.scorers.scorer import ScoreWriter
from ragguard.scorers.view import StepView, View, read_texts
from ragguard.text.language import meaning_key

SHOWN = 120
"""How many characters of an answer an explanation shows."""


class _Reading(NamedTuple):
    """A passage that answers a sub-question."""

    sub_question: int
    text: str


class Conflict(NamedTuple):
    """Two passages that the model read and whose answers to a sub-question contradict each other."""

    sub_question: int
    first: str
    first_answer: str
    second: str
    second_answer: str


@dataclass(frozen=True, slots=True)
class Contested:
    """Gives `contested` of each step, over all that the model read by then, and of the run."""

    name: ClassVar[str] = "contested"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ("judge", "entailer")
    live = "so far"

    eta: float = 3
    """The least rating, from 0 to 5, with which a passage counts as answering a sub-question."""
    tau: float = 0.5
    """The least probability of a contradiction, from 0 to 1, that counts; one direction of the two is enough."""

    def __post_init__(self) -> None:
        number_between("Contested.eta", self.eta, 0, 5, "a number from 0 to 5")
        share("Contested.tau", self.tau)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        if not any(step.readable for step in view.steps):
            return writer.results()
        with writer.failing("contested"):
            asked, _ = await find_sub_questions(view, ask)
            ratings = Ratings(asked[: view.setting.caps.sub_questions])
            texts = read_texts(view.steps)
            await ratings.learn(texts, view.setting.judge_prompts, ask)
            found = Conflicts(self, view, ratings, texts)
            await found.learn(ask)
            found.write(writer)
        return writer.results()


class Conflicts:
    """Finds which of the texts that a model read contradict each other, with as few questions as possible."""

    def __init__(self, settings: Contested, view: View, ratings: Ratings, texts: Sequence[str]) -> None:
        self._settings, self._view, self._ratings, self._texts = settings, view, ratings, texts
        self.usage = Usage()
        self.found: list[Conflict] = []

    async def learn(self, ask: Ask, relevant: Collection[str] | None = None) -> None:
        """Asks for the answer of each passage to a shared sub-question, and compares the answers that differ.

        `relevant`: the texts that are relevant to the query which brought them, where these are known.
        """
        rated = [
            _Reading(number, text)
            for text in self._texts
            for number in self._ratings.answered_by(text, self._settings.eta)
        ]
        readings = _shared(sorted(rated, key=lambda reading: reading.sub_question))
        if relevant is None:
            relevant = await self._relevant({reading.text for reading in readings}, ask)
        readings = _shared([reading for reading in readings if reading.text in relevant])
        drawn = await ask([self._question(reading) for reading in readings])
        texts = [self._text(answered(answer)) for answer in drawn]
        language = self._view.setting.language
        said = {text: "" if is_abstention(text, language) else text for text in set(texts)}
        words = [said[text] for text in texts]
        couples = [
            (one, other, Pair(self._ratings.sub_questions[one.sub_question], first, second))
            for (one, first), (other, second) in combinations(zip(readings, words, strict=True), 2)
            if one.sub_question == other.sub_question and self._differ(first, second)
        ]
        pairs = list(dict.fromkeys(turned for *_, pair in couples for turned in (pair, pair.turned)))
        relations = await ask([EntailQuestion(pair) for pair in pairs])
        contradict = {
            pair for pair, answer in zip(pairs, relations, strict=True) if self._contradicts(answered(answer))
        }
        self.found = [
            Conflict(one.sub_question, one.text, pair.premise, other.text, second_answer=pair.hypothesis)
            for one, other, pair in couples
            if contradict & {pair, pair.turned}
        ]

    def write(self, writer: ScoreWriter) -> None:
        """Adds the score of each step, over all texts that the model had read by then, and of the run."""
        steps = self._view.steps
        for number, step in enumerate(steps, 1):
            if step.readable:
                self._add(writer, steps[:number], step)
        self._add(writer, steps, None)

    def _add(self, writer: ScoreWriter, steps: Sequence[StepView], about: StepView | None) -> None:
        texts = read_texts(steps)
        index = {text: number for number, text in enumerate(texts)}
        here = [one for one in self.found if one.first in index and one.second in index]
        table = np.zeros((len(texts), len(texts), len(self._ratings.sub_questions)), dtype=np.bool_)
        for one in here:
            table[index[one.first], index[one.second], one.sub_question] = True
        where = _positions(steps)
        writer.add(
            "contested",
            measures.contested(self._ratings.table(texts), table, self._settings.eta),
            step=about,
            who="judge",
            stderr=self._ratings.stderr(texts),
            label="; ".join(dict.fromkeys(f"{where[one.first]} against {where[one.second]}" for one in here)),
            explanation=_in_words(here, where),
            references=given_sub_questions(self._view),
            usage=self.usage if about is None else None,
            metadata={
                "conflicts": [
                    {
                        "sub_question": one.sub_question,
                        "passages": [where[one.first], where[one.second]],
                        "answers": [one.first_answer, one.second_answer],
                    }
                    for one in here
                ]
            },
        )

    async def _relevant(self, texts: Set[str], ask: Ask) -> set[str]:
        """Returns the texts that are relevant to the query which brought them, judged without the references.

        A sub-question may speak of "that town", and then a passage about another town answers it, too.
        """
        view = self._view
        asked = {
            (view.query_of(step), text): None
            for step in view.steps
            for text in step.texts(step.got)
            if text in texts
        }
        questions = [relevance(view.setting.judge_prompts, query, text) for query, text in asked]
        found: set[str] = set()
        for (_, text), question, answer in zip(asked, questions, await ask(questions), strict=True):
            judged = read_relevance(question, answered(answer))
            self.usage += judged.usage
            if judged.p >= 0.5:
                found.add(text)
        return found

    def _question(self, reading: _Reading) -> SampleQuestion:
        """Returns the question for the likeliest answer to the sub-question from the passage alone."""
        prompts = self._view.setting.judge_prompts
        asked = self._ratings.sub_questions[reading.sub_question]
        prompt = prompts.render("answer", [reading.text], question=asked)
        most = prompts.template("answer").max_tokens
        return SampleQuestion(prompt, 1, most, 0.0, seed=self._view.seed, who="judge")

    def _text(self, answer: SampleAnswer) -> str:
        self.usage += answer.usage
        return " ".join(answer.samples[0].text.split()) if answer.samples else ""

    def _differ(self, first: str, second: str) -> bool:
        language = self._view.setting.language
        return (
            bool(first and second)
            and first != second
            and meaning_key(first, language) != meaning_key(second, language)
        )

    def _contradicts(self, answer: EntailAnswer) -> bool:
        self.usage += answer.usage
        return relation(answer)[2] >= self._settings.tau


def _shared(readings: Sequence[_Reading]) -> list[_Reading]:
    """Returns the readings of those sub-questions that two or more passages answer."""
    counts = Counter(reading.sub_question for reading in readings)
    return [reading for reading in readings if counts[reading.sub_question] > 1]


def _in_words(found: Sequence[Conflict], where: dict[str, str]) -> str:
    """Returns the first contradiction in words, and how many more there are; the metadata have all of them."""
    if not found:
        return ""
    one = found[0]
    first, second = (
        f"{where[text]} “{answer[:SHOWN]}”"
        for text, answer in ((one.first, one.first_answer), (one.second, one.second_answer))
    )
    more = f"; {len(found) - 1} more" if len(found) > 1 else ""
    return f"{first} against {second}{more}"


def _positions(steps: Sequence[StepView]) -> dict[str, str]:
    """Returns for each text where the model got it first, as `hop.position`, both from 1."""
    where: dict[str, str] = {}
    for step in steps:
        for at in step.got:
            where.setdefault(step.all[at].text, f"{step.step.index + 1}.{at + 1}")
    return where
