"""Contexts without an answer get one: the reader's own, greedy, then graded correct, abstained or wrong.

Equal prompts are put once, and so are equal answers to a question. What a metric says is no business of this file:
grades come from references alone.
"""

from __future__ import annotations

from collections.abc import Coroutine, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from ragguard.answer_text import ENGLISH, Language
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.entailment.base import Entailer
from ragguard.engines.entailment.engine import EngineEntailer
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import EngineProtocolError, InvalidInput, LowLabelMass, PromptTooLong, RagguardError
from ragguard.probes.belief import belief
from ragguard.probes.question import Answer, EntailAnswer, Question, SampleQuestion
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.asker import Asker
from ragguard.scorers.meanings import Meanings
from ragguard.scorers.respondents import Engines
from ragguard.scorers.view import short
from ragguard.validate.contexts import OUTCOMES, Context
from ragguard.validate.progress import Progress, silent

T = TypeVar("T")
BATCH = 256
_NO_CAP = 10**12
# What is wrong with one context; anything else is wrong with the engine, and raised.
_OF_ONE = (PromptTooLong, EngineProtocolError, LowLabelMass)


def reading(
    prompts: PromptSet, question: str, passages: Sequence[str], *, may_abstain: bool = True
) -> SampleQuestion:
    """What the reader is asked: with the words that let it abstain, or to give its best guess in any case."""
    if may_abstain:
        prompt = prompts.render("abstention", passages, query=question)
        return SampleQuestion(prompt, 1, prompts.template("abstention").max_tokens, 0.0, seed=0)
    return replace(belief(prompts, question, passages, n=1, seed=0), temperature=0.0)


async def with_answers(
    contexts: Sequence[Context],
    engine: Engine,
    *,
    may_abstain: bool = True,
    prompts: PromptSet | None = None,
    progress: Progress = silent,
) -> list[Context]:
    """The contexts in their order; those without an answer get the reader's, most probable word by word.

    One whose prompt the model cannot take stays without; any other fault of the engine is raised.
    """
    engine = connect(engine)
    prompts = prompts or load_prompts((await engine.info()).prompts)
    asked = {
        at: reading(prompts, context.question, [p.text for p in context.passages], may_abstain=may_abstain)
        for at, context in enumerate(contexts)
        if context.answer is None
    }
    distinct = list(dict.fromkeys(asked.values()))
    asker = _asker(engine, EngineEntailer(engine, prompts))
    said: dict[SampleQuestion, str] = {}
    for start in range(0, len(distinct), BATCH):
        progress("answering", start, len(distinct))
        batch = distinct[start : start + BATCH]
        (answers,) = await _together(asker, [asker(batch)])
        for question, answer in zip(batch, answers, strict=True):
            if isinstance(answer, RagguardError):
                _raise_unless_its_own(answer)
            else:
                said[question] = answer.samples[0].text.strip()
    progress("answering", len(distinct), len(distinct))
    answered = list(contexts)
    for at, question in asked.items():
        answered[at] = replace(contexts[at], answer=said.get(question))
    return answered


async def grader(engine: Engine) -> Engine | None:
    """Who compares answers with references that hold every name of the answer, as those of `world.cases` do.

    nano takes a wrong name for a right one too often to be asked (6 of 100 for one hop, 28 for two), and answers in
    names alone: nobody, then, as words are enough. A model that answers in sentences compares them itself.
    """
    return None if (await engine.info()).prompts == "nano" else engine


async def with_outcomes(
    contexts: Sequence[Context],
    judge: Engine | None,
    *,
    entailer: Entailer | None = None,
    prompts: PromptSet | None = None,
    language: Language = ENGLISH,
    progress: Progress = silent,
) -> list[Context]:
    """The contexts in their order, their answers graded as `OUTCOMES` where references say what is right.

    An outcome that is known stays; long references, which no short answer can meet, give none. Without a judge (see
    `grader`) and an entailer an answer is right when it has the words of a reference.
    """
    if judge is not None:
        judge = connect(judge)
        prompts = prompts or load_prompts((await judge.info()).prompts)
        asker = _asker(judge, entailer or EngineEntailer(judge, prompts))
    elif entailer is not None:
        raise InvalidInput("judge", judge, "an engine, beside an entailer")
    else:
        asker = Asker(_WordsAlone(), _NO_CAP)

    async def graded(question: str, answer: str, references: tuple[str, ...]) -> float | None:
        try:
            verdict, _ = await verdict_of(answer, references, Meanings(question, asker, language))
        except RagguardError as error:
            _raise_unless_its_own(error)
            return None
        return float(OUTCOMES[verdict])

    wanted = {
        at: (context.question, context.answer, references)
        for at, context in enumerate(contexts)
        if context.outcome is None
        and context.answer is not None
        and (references := short(context.references))
    }
    distinct = list(dict.fromkeys(wanted.values()))
    grades: dict[tuple[str, str, tuple[str, ...]], float | None] = {}
    for start in range(0, len(distinct), BATCH):
        progress("grading answers", start, len(distinct))
        batch = distinct[start : start + BATCH]
        grades.update(zip(batch, await _together(asker, [graded(*one) for one in batch]), strict=True))
    progress("grading answers", len(distinct), len(distinct))
    judged = list(contexts)
    for at, one in wanted.items():
        judged[at] = replace(contexts[at], outcome=grades[one])
    return judged


def _asker(engine: Engine, entailer: Entailer) -> Asker:
    return Asker(Engines(engine, engine, entailer), _NO_CAP)


class _WordsAlone:
    """Answers that nothing follows from other words."""

    def batch_of(self, question: Question) -> Hashable:
        return None

    async def respond(self, questions: Sequence[Question]) -> list[Answer]:
        return [EntailAnswer((0.0, 1.0, 0.0)) for _ in questions]


async def _together(asker: Asker, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it in as few calls as can be; what is still under way ends with whoever waits for it."""
    found = await asker.attend(work)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return cast(list[T], found)


def _raise_unless_its_own(error: RagguardError) -> None:
    if not isinstance(error, _OF_ONE):
        raise error
