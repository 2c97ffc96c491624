"""The evidence for advice: coverage, contradictions, the reader's answers, and the use of the last step.

It puts the same questions as the scorers do, so that the engine's cache answers what live scoring has asked already.
It never sees a reference, a pool or the run's answer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from ragguard.errors import RagguardError
from ragguard.metrics import subquestions as measures
from ragguard.metrics.distraction import utility
from ragguard.records import Usage
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.contested import Conflict, Conflicts, Contested
from ragguard.scorers.contexts import CLOSED_BOOK, BeliefContext, window
from ragguard.scorers.coverage import find_sub_questions
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.pipeline import Inquiry
from ragguard.scorers.probes.abstention import abstention, read_abstention
from ragguard.scorers.probes.belief import belief
from ragguard.scorers.probes.question import Ask, LabelQuestion, SampleQuestion, answered
from ragguard.scorers.probes.relevance import read_relevance, relevance
from ragguard.scorers.ratings import Ratings
from ragguard.scorers.view import StepView, View, numbered, read_texts

WEIGHED = 4
"""How many contradictions are looked at for what they decide."""
AskAbout: TypeAlias = Callable[[Sequence[Inquiry]], Awaitable[View]]
"""Runs inquiries about a run at the same time, and returns the run as they saw it."""
HELPS = 0.2
"""A passage whose utility is at least this helps; one under the negative of it misleads, by the guard's default."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The findings about the retrieved passages after a step, none of which needs a reference answer."""

    sub_questions: tuple[str, ...]
    covered: tuple[int, ...]
    """The number of the first turn whose passages answer each sub-question, from 1; 0 for one that is open."""
    turns: int
    """How many turns of retrieval there were."""
    conflicts: tuple[Conflict, ...]
    """Passages that contradict each other about a sub-question."""
    redundancy: float | None
    """The share of what the last turn answers that earlier turns had answered; None where it answers nothing."""
    p_answer: float
    """The probability that the reader, given all that was read, answers the question instead of abstaining."""
    utilities: tuple[float, ...]
    """The utility of each passage of the last turn for the query that brought it."""
    turns_without_help: int = 0
    """How many of the last turns, in a row, brought no passage that helps with its query."""
    deciding: tuple[Conflict, ...] = ()
    """The contradictions that decide the answer: without one of the two passages the reader gives another one than
    without the other."""
    unjudged: tuple[str, ...] = ()
    """The reasons why single passages could not be judged; such a passage counts as one that answers nothing."""

    @property
    def open(self) -> list[str]:
        """The sub-questions that nothing which was read answers."""
        return [text for text, turn in zip(self.sub_questions, self.covered, strict=True) if not turn]

    @property
    def coverage(self) -> float:
        """The share of the sub-questions that a passage answers which is relevant to the query that brought it."""
        return 1 - len(self.open) / len(self.sub_questions)

    @property
    def contested(self) -> float:
        """The share of the sub-questions to which passages give answers that contradict each other."""
        return len({one.sub_question for one in self.conflicts}) / len(self.sub_questions)

    @property
    def undecided(self) -> float:
        """The share of the sub-questions about which a contradiction decides the answer."""
        return len({one.sub_question for one in self.deciding}) / len(self.sub_questions)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers by name, as advice carries them."""
        before = sum(0 < turn < self.turns for turn in self.covered) / len(self.sub_questions)
        found = {
            "coverage": self.coverage,
            "delta_coverage": self.coverage - before,
            "contested": self.contested,
            "undecided": self.undecided,
            "p_answer": self.p_answer,
            "turns_without_help": float(self.turns_without_help),
        }
        if self.redundancy is not None:
            found["redundancy"] = self.redundancy
        if self.utilities:
            found |= {"best_utility": max(self.utilities), "worst_utility": min(self.utilities)}
        return found


@dataclass(slots=True)
class EvidenceSearch:
    """Asks for the evidence about one run as it stands."""

    contested: Contested
    usage: Usage = field(default_factory=Usage)
    """The cost of asking so far."""
    _ratings: Ratings = field(default_factory=lambda: Ratings(()))
    _conflicts: tuple[Conflict, ...] = ()
    _deciding: tuple[Conflict, ...] = ()
    _relevant: set[str] = field(default_factory=set)
    _utilities: list[float] = field(default_factory=list)
    _helped: set[str] = field(default_factory=set)
    _p_answer: float = 0.0
    _unjudged: dict[str, None] = field(default_factory=dict)

    async def evidence(self, ask_about: AskAbout) -> tuple[Evidence, View]:
        """Returns the evidence, and the run as it was seen."""
        view = await ask_about([self._coverage, self._reading])
        if self._conflicts:
            await ask_about([self._weighing])
        return self._found(view), view

    def _found(self, view: View) -> Evidence:
        """Returns the evidence so far."""
        turns, over = _turns(view), len(view.steps_over_cap)
        if over:
            most = view.setting.caps.steps
            self._unjudged[f"only the first {most} steps are judged; raise Caps(steps=...)"] = None
        return Evidence(
            self._ratings.sub_questions,
            tuple(self._covered(number, turns) for number in range(len(self._ratings.sub_questions))),
            len(turns),
            self._conflicts,
            redundancy=self._redundancy(turns),
            p_answer=self._p_answer,
            utilities=tuple(self._utilities),
            turns_without_help=self._turns_without_help(turns),
            deciding=self._deciding,
            unjudged=tuple(self._unjudged),
        )

    async def _coverage(self, view: View, ask: Ask) -> None:
        """Rates what was read for each sub-question, and finds passages that contradict each other."""
        ask = self._counted(ask)
        asked, _ = await find_sub_questions(view, ask)
        self._ratings = Ratings(asked[: view.setting.caps.sub_questions])
        texts = read_texts(view.steps)
        await self._ratings.learn(texts, view.setting.judge_prompts, ask)
        cells = [cell for text in texts for cell in self._ratings.rows[text]]
        self._note([cell for cell in cells if isinstance(cell, RagguardError)], of=len(cells))
        conflicts = Conflicts(self.contested, view, self._ratings, texts)
        await conflicts.learn(ask)
        self._conflicts = tuple(conflicts.found)

    async def _reading(self, view: View, ask: Ask) -> None:
        """Asks what each passage does for the query that brought it, and whether all together let the reader answer."""
        ask = self._counted(ask)
        setting, last = view.setting, {id(step) for step in _turns(view)[-1]}
        read = [(step, at) for step in view.steps for at in step.got if at in step.judged]
        questions: list[LabelQuestion] = [
            abstention(setting.prompts, view.run.question, *fitting(view, view.steps).passages)
        ]
        for step, at in read:
            query, text = view.query_of(step), step.all[at].text
            questions += [
                abstention(setting.prompts, query, text),
                relevance(setting.judge_prompts, query, text),
            ]
        answers = await ask(questions)
        self._p_answer = 1 - read_abstention(answered(answers[0])).p
        errors: list[RagguardError] = []
        for number, (step, at) in enumerate(read):
            abstains, relevant = answers[2 * number + 1 : 2 * number + 3]
            try:
                p = read_relevance(questions[2 * number + 2], answered(relevant)).p
                worth = float(utility(float(p >= 0.5), read_abstention(answered(abstains)).p))
            except RagguardError as error:
                errors.append(error)
                continue
            if p >= 0.5:
                self._relevant.add(step.all[at].text)
            if worth >= HELPS:
                self._helped.add(step.step.id)
            if id(step) in last:
                self._utilities.append(worth)
        self._note(errors, of=len(read))

    async def _weighing(self, view: View, ask: Ask) -> None:
        """Finds the contradictions that decide the answer, from the reader's likeliest answers without each passage."""
        ask = self._counted(ask)
        setting, question = view.setting, view.run.question
        weighed = self._conflicts[:WEIGHED]
        without = list(dict.fromkeys(text for one in weighed for text in (one.first, one.second)))
        passages = fitting(view, view.steps).passages
        most = setting.prompts.template("abstention").max_tokens
        drawn = await ask(
            [
                SampleQuestion(
                    setting.prompts.render("abstention", [one for one in passages if one != text], query=question),
                    1, most, 0.0, seed=view.seed,
                )
                for text in without
            ]
        )  # fmt: skip
        meanings = Meanings(question, ask, setting.language)
        said = {
            text: meanings.words(next((one.text for one in answered(answer).samples), ""))
            for text, answer in zip(without, drawn, strict=True)
        }
        both = [(said[one.first], said[one.second]) for one in weighed]
        await meanings.learn(pair for first, second in both for pair in ((first, second), (second, first)))
        self._deciding = tuple(
            one
            for one, (first, second) in zip(weighed, both, strict=True)
            if max(meanings.entailment(first, second)[2], meanings.entailment(second, first)[2])
            >= self.contested.tau
        )

    def _counted(self, ask: Ask) -> Ask:
        """Returns what asks in the same way, with what that costs counted."""

        async def asking(questions: Sequence[Any]) -> list[Any]:
            answers: list[Any] = await ask(questions)
            self.usage = sum((one.usage for one in answers if not isinstance(one, RagguardError)), self.usage)
            return answers

        return cast(Ask, asking)

    def _note(self, errors: Sequence[RagguardError], of: int) -> None:
        """Notes why single judgements `of` so many failed; raises the first error where all did."""
        if errors and len(errors) == of:
            raise errors[0]
        self._unjudged |= dict.fromkeys(str(error) for error in errors)

    def _covered(self, number: int, turns: Sequence[Sequence[StepView]]) -> int:
        """Returns the first turn, from 1, with a passage that answers a sub-question; 0 where none does."""
        for turn, steps in enumerate(turns, 1):
            for text in read_texts(steps):
                if text in self._relevant and number in self._answered_by(text):
                    return turn
        return 0

    def _turns_without_help(self, turns: Sequence[Sequence[StepView]]) -> int:
        helped = [any(step.step.id in self._helped for step in turn) for turn in reversed(turns)]
        return helped.index(True) if any(helped) else len(helped)

    def _answered_by(self, text: str) -> set[int]:
        return self._ratings.answered_by(text, self.contested.eta)

    def _redundancy(self, turns: Sequence[Sequence[StepView]]) -> float | None:
        last = read_texts(turns[-1]) if turns else []
        before = read_texts([step for turn in turns[:-1] for step in turn])
        texts = [*before, *(text for text in last if text not in before)]
        numbers = range(len(self._ratings.sub_questions))
        table = [[5.0 * (number in self._answered_by(text)) for number in numbers] for text in texts]
        values = measures.redundancy(table, self.contested.eta).tolist()[len(before) :] if texts else []
        known = [value for value in values if not math.isnan(value)]
        return sum(known) / len(known) if known else None


async def correctness(ask_about: AskAbout) -> float:
    """Asks the reader for its likeliest answer with what was read so far; returns 1 where it means a reference, else 0.

    For calibration alone, where the references are known.
    """
    correct = False

    async def answer(view: View, ask: Ask) -> None:
        nonlocal correct
        question, context = view.run.question, fitting(view, view.steps)
        drawn = belief(
            view.setting.prompts, question, context.passages, cut_order=context.cut_order, n=1, seed=view.seed
        )
        likeliest = SampleQuestion(drawn.prompt, 1, drawn.max_tokens, 0.0, seed=view.seed)
        samples = answered((await ask([likeliest]))[0]).samples
        meanings = Meanings(question, ask, view.setting.language)
        verdict, _ = await verdict_of(samples[0].text if samples else "", view.short_references, meanings)
        correct = verdict == "correct"

    await ask_about([answer])
    return float(correct)


def _turns(view: View) -> list[list[StepView]]:
    """Returns the steps turn by turn; a turn that retrieved nothing is empty."""
    over = {step.id for step in view.steps_over_cap}
    turns: dict[int, list[StepView]] = {
        turn: [] for turn, step in numbered(view.run.steps) if step.id not in over
    }
    for turn, step in view.turns:
        turns[turn].append(step)
    return list(turns.values())


def fitting(view: View, steps: Sequence[StepView]) -> BeliefContext:
    """Returns what the reader gets of the steps, within its window."""
    readable = [step for step in steps if step.readable]
    if not readable:
        return BeliefContext(CLOSED_BOOK)
    setting = view.setting
    fit = window(setting.prompts, setting.engine.context, task="answer", question=view.run.question)
    return fit(readable)
