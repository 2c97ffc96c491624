"""Gathers the questions of all scorers of a run and has them answered in as few batches as their order allows.

Scorers run at the same time. What they ask before any of them has an answer is one wave: every distinct question is
sent once, with one call for each verb and set of parameters. Questions that depend on answers come in a later wave. A
respondent answers a wave: the models, or a price list. Every token that was asked is in the usage of a score: what no
score tells, such as drawn answers and their comparisons, is added to the last score of the scorer, or to that of
another.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from ragguard.engines.base import Engine, Prompt
from ragguard.engines.engine import only_of, send_to
from ragguard.engines.entailer import Entailer
from ragguard.engines.entailment import EntailRequest, Pair
from ragguard.engines.requests import apportion
from ragguard.errors import CapExceeded, EngineProtocolError, PromptTooLong, RagguardError, UnfitText
from ragguard.records import Result, Score, Usage
from ragguard.runtime.faults import NOTICES, is_cancelled
from ragguard.runtime.limiter import in_parallel
from ragguard.scorers.question import (
    Answer,
    Ask,
    EntailQuestion,
    LabelQuestion,
    Question,
    count_tokens,
    prompt_tokens,
)

T = TypeVar("T")

_FAULTS_OF_ONE_QUESTION = (PromptTooLong, UnfitText, EngineProtocolError)
"""The errors that one question of a batch may cause, so that the others are asked again without it."""
_MOST_FURTHER_CALLS = 24
"""The most calls by which the rest of a batch is asked again without one bad question."""


class Respondent(Protocol):
    """Answers questions that may share one call."""

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer | RagguardError]:
        """Returns one answer for each question, or the error in its place; raises a RagguardError where none can be
        answered."""
        ...


GUARDING = -10
"""The priority of a guard's questions: a retrieval waits for them."""
ADVISING = -5
"""The priority of questions for advice: an agent waits for them."""
DEMANDED = 5
"""The priority of scores that somebody waits for."""
SCORING = 10
"""The priority of what is asked in the background."""


@dataclass(frozen=True, slots=True)
class Models:
    """The model that reads, the one that judges and what compares answers, asked with one priority and deadline."""

    engine: Engine
    judge: Engine
    entailer: Entailer | None = None
    """None for callers that never compare answers."""
    priority: int = SCORING
    deadline: float | None = None
    shares: bool = True
    """False for a caller that reads no usage, so that none is shared out: that takes time."""

    async def respond(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Sends questions that share a call to their model; each answer has its share of the usage."""
        call = questions[0].call.with_prompts([question.prompt for question in questions])
        request = replace(call, deadline=self.deadline, priority=self.priority)
        reply = await send_to(self._model_for(questions[0]), request)
        usages = [Usage()] * len(questions)
        if self.shares:
            usages = apportion(reply.usage, [_characters(question.prompt) for question in questions])
        if reply.cuts and isinstance(request, EntailRequest):
            NOTICES.once(
                "answers cut",
                "answers were cut to fit the context of the model that compares them: name a `judge` or an `entailer` "
                "that reads more",
            )
        return [
            question.answer(value, usage)
            for question, value, usage in zip(questions, reply.values, usages, strict=True)
        ]

    def _model_for(self, question: Question) -> Engine:
        if question.who == "entailer":
            return cast(Engine, self.entailer)  # `send_to` calls the verb of the request alone
        # A judge leaves to the reader what it cannot do: to write, or, for a reranker, all but relevance.
        only = only_of(self.judge)
        left = (only and not isinstance(question, LabelQuestion)) or (
            only == "ranks" and question.probe != "relevance"
        )
        return self.engine if question.who == "engine" or left else self.judge


def _characters(prompt: Prompt | Pair) -> int:
    if isinstance(prompt, Pair):
        return sum(map(len, prompt))
    return len(prompt.text) + sum(len(message.content) for message in prompt.messages)


def tokens_of(question: Question, around_pair: int = 0) -> int:
    """Returns about how many prompt tokens a question takes; the samples of one prompt are counted once.

    `around_pair`: the tokens of a judge's prompt around two answers to compare; 0 for an NLI model, which has no
    prompt.
    """
    if isinstance(question, EntailQuestion):
        pair = question.pair
        texts = (pair.question, pair.question, pair.premise, pair.hypothesis)
        return sum(map(count_tokens, texts)) + around_pair
    return prompt_tokens(question.prompt) + count_tokens(question.prompt.text)


class Asker:
    """Sends the questions of one run; scorers get it as their `ask`."""

    def __init__(
        self,
        respondent: Respondent,
        cap: int | None = None,
        window: int | None = None,
        around_pair: int = 0,
    ) -> None:
        """Takes how many prompt tokens may be asked; None: any number."""
        self._respondent, self._cap, self._left = respondent, cap, math.inf if cap is None else cap
        self._window, self._around_pair = window, around_pair
        self._answers: dict[Question, Answer | RagguardError] = {}
        self._accounted: set[Question] = set()
        self._gathered: dict[Question, None] = {}
        """The questions of the wave that is sent next."""
        self._next: asyncio.Task[None] | None = None
        self._waves: set[asyncio.Task[None]] = set()

    async def attend(self, work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Calls functions that ask, all at the same time, and returns their results; raises the first exception."""
        tasks = [asyncio.ensure_future(one()) for one in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for pending in (*tasks, *self._waves):
                pending.cancel()

    async def __call__(self, questions: Sequence[Any]) -> list[Any]:
        """Returns the answers in the order of the questions, with an error in place of an answer that failed.

        The first caller that gets an answer gets its usage, too, so that the usages of all scores add up.
        """
        fresh = dict.fromkeys(question for question in questions if question not in self._answers)
        if fresh:
            self._gathered |= fresh
            if self._next is None:
                # The task begins once all callers that can go on now have asked, and so joins their questions.
                self._next = asyncio.ensure_future(self._wave())
                self._waves.add(self._next)
                self._next.add_done_callback(self._waves.discard)
            await asyncio.shield(self._next)
        return [self._hand_out(question) for question in questions]

    def _hand_out(self, question: Question) -> Answer | RagguardError:
        answer = self._answers[question]
        if isinstance(answer, RagguardError):
            return answer
        if question in self._accounted:
            return replace(answer, usage=Usage())
        self._accounted.add(question)
        return answer

    async def _wave(self) -> None:
        questions, self._gathered, self._next = self._gathered, {}, None
        affordable = [question for question in questions if self._afford(question)]
        await in_parallel([partial(self._answer, batch) for batch in _calls(affordable)])

    def _afford(self, question: Question) -> bool:
        """Returns whether a question is within the cap; else its answer is the error. Text that does not fit the
        model's window is cut by the engine, and not counted."""
        tokens = tokens_of(question, self._around_pair)
        tokens = min(tokens, self._window or tokens)
        if tokens <= self._left:
            self._left -= tokens
            return True
        self._answers[question] = CapExceeded(
            f"the prompts of a run may have {self._cap} tokens in all; {self._left} were left and about {tokens} were "
            "needed; raise Caps(prompt_tokens=...) to have this judged"
        )
        return False

    async def _answer(self, questions: list[Question]) -> None:
        """Asks all questions in one call; where one of them makes it fail, asks halves, so that only it fails."""
        todo, calls = [questions], 0
        while todo:
            batches, todo = todo, []
            calls += len(batches)
            replies = await in_parallel([partial(self._ask_once, batch) for batch in batches])
            for batch, answers in zip(batches, replies, strict=True):
                if not isinstance(answers, RagguardError):
                    self._answers.update(zip(batch, answers, strict=True))
                elif (
                    isinstance(answers, _FAULTS_OF_ONE_QUESTION)
                    and len(batch) > 1
                    and calls < _MOST_FURTHER_CALLS
                ):
                    todo += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                else:
                    self._answers.update(dict.fromkeys(batch, answers))

    async def _ask_once(self, questions: list[Question]) -> Sequence[Answer | RagguardError] | RagguardError:
        try:
            return await self._respondent.respond(questions)
        except RagguardError as error:
            return error
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            # An engine of the user's may raise anything; it becomes data here.
            fault = EngineProtocolError(
                f"the engine raised what no engine should: {type(error).__name__}: {error}"
            )
            fault.__cause__ = error
            return fault


async def ask_at_once(respondent: Respondent, questions: Sequence[Any]) -> list[Any]:
    """Returns the answers to questions in their order, by one call for each model and set of parameters; raises what a
    call raises. For callers that need no waves, caps or usage, and save the time."""
    calls = _calls(questions)
    replies = await in_parallel([partial(respondent.respond, call) for call in calls])
    answers = {
        question: answer
        for call, reply in zip(calls, replies, strict=True)
        for question, answer in zip(call, reply, strict=True)
    }
    return [answers[question] for question in questions]


def _calls(questions: Iterable[Question]) -> list[list[Question]]:
    """Returns the questions that one call can put to a model, for each call."""
    calls: dict[Hashable, list[Question]] = {}
    for question in questions:
        calls.setdefault((question.who, question.call), []).append(question)
    return [*calls.values()]


class MeteredAsk:
    """The `ask` of one scorer, which adds up the usage of its answers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.usage = Usage()

    async def __call__(self, questions: Sequence[Any]) -> list[Any]:
        """Returns the answers to the questions."""
        answers: list[Any] = await self._ask(questions)
        costs = (answer.usage for answer in answers if not isinstance(answer, RagguardError))
        self.usage = sum(costs, self.usage)
        return answers


def unattributed(usage: Usage, results: Sequence[Result]) -> Usage:
    """Returns the part of a usage that is in no score of the results."""
    attributed = sum((result.usage for result in results if isinstance(result, Score)), Usage())
    pairs = zip(astuple(usage), astuple(attributed), strict=True)
    # Shares add up with rounding errors.
    return Usage(*(max(0, round(used - known, 6)) for used, known in pairs))


def paid(results: list[Result], usage: Usage) -> tuple[list[Result], Usage]:
    """Adds a usage to the last score of the results; returns it where they have none, too."""
    for index, score in reversed([*enumerate(results)]):
        if isinstance(score, Score) and usage != Usage():
            with_it = replace(score, usage=score.usage + usage)
            return [*results[:index], with_it, *results[index + 1 :]], Usage()
    return results, usage
