"""Scores about the run's answer: whether it is right, and which share of an ideal answer it contains."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ragguard.errors import RagguardError
from ragguard.records import Result
from ragguard.runtime.arguments import share
from ragguard.scorers.answer_support import supported_by_words
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.passages import judge_passages
from ragguard.scorers.probes import (
    Reading,
    read_rating,
    read_short_form,
    response_grade,
    short_forms,
    too_long_to_compare,
)
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.scorer import ScoreWriter, worth_repeating
from ragguard.scorers.view import View
from ragguard.text.statements.verdict import ONE_CLAUSE, verdict_by_words
from ragguard.text.statements.words import answer_words

Verdict = Literal["correct", "abstained", "wrong"]
VALUES = {"correct": 1.0, "correct, unsupported": 0.5, "abstained": 0.0, "wrong": 0.0}
"""The value of `answer_correct` for each verdict; a right answer that no passage supports counts half."""
SAME_WORDS = "the same words as a reference"
HOLDS_WORDS = "it has the words of a reference"
BY_WORDS = "", SAME_WORDS, HOLDS_WORDS
"""The explanations of `answer_correct` for which no model was asked."""


async def verdict_of(
    answer: str,
    references: Sequence[str],
    meanings: Meanings,
    shorten: Callable[[], Awaitable[str]] | None = None,
) -> tuple[Verdict, str]:
    """Returns whether an answer is right by short references, and the reason. Support by passages is not considered.

    Words decide first, as people judge them (`right_by_words`). If they do not, a sentence from which a reference
    follows is right, with an entailment of at least `meanings.tau`: it may say more. Of a short answer entailment holds
    both ways, since more names are another answer. `shorten` returns the answer in the form in which a model compares
    it, if that is another one.
    """
    by_words = verdict_by_words(answer, references, meanings.question, meanings.language)
    if by_words.abstained:
        return "abstained", ""
    words = meanings.words(answer)
    targets = [meanings.words(reference) for reference in references]
    if words in targets:
        return "correct", SAME_WORDS
    if by_words.right is not None:
        return ("correct", HOLDS_WORDS) if by_words.right else ("wrong", "")
    if by_words.why:
        return "wrong", by_words.why  # no model may overrule it
    if shorten is not None:
        words = meanings.words(await shorten())
    await meanings.learn((words, target) for target in targets)
    implied = [target for target in targets if meanings.follows(words, target)]
    if implied and len(answer_words(answer)) > ONE_CLAUSE:
        return "correct", "a reference follows from it"
    await meanings.learn((target, words) for target in implied)
    if any(meanings.follows(target, words) for target in implied):
        return "correct", "it and a reference follow from each other"
    return "wrong", "a reference follows from it, and it names more" if implied else ""


@dataclass(frozen=True, slots=True)
class Answers:
    """Gives `answer_correct` and `response_grade` of runs with references."""

    name: ClassVar[str] = "answers"
    version: ClassVar[str] = "5"

    tau: float = 0.5
    """The least entailment, from 0 to 1, with which a reference follows from the answer."""

    def __post_init__(self) -> None:
        share("Answers.tau", self.tau)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer, answer, prompts = ScoreWriter(view, self), view.run.answer, view.setting.judge_prompts
        if answer is None or not view.references or not view.run.question.strip():
            return writer.results()
        asked = response_grade(prompts, view.run.question, answer, view.references)
        (told,) = await ask([asked])
        with writer.failing("response_grade"):
            rating = read_rating(asked, answered(told), prompts.template("response_grade").grades)
            about: dict[str, Any] = {"reference_source": "gold", "references": view.references}
            writer.add("response_grade", rating, who="judge", **about)
        if view.short_references:
            with writer.failing("answer_correct"):
                await self._correct(writer, answer, ask)
        return writer.results()

    async def _correct(self, writer: ScoreWriter, answer: str, ask: Ask) -> None:
        """Adds `answer_correct`, judged by the short references: no short answer has the meaning of a long one."""
        view, setting, question = writer.view, writer.view.setting, writer.view.run.question
        prompts, language = setting.judge_prompts, setting.language
        meanings = Meanings(question, ask, language, tau=self.tau)
        facts: dict[str, int | str] = {}

        async def shorten() -> str:
            asked = short_forms(prompts, question, answer, view.seed)
            replies = [answered(reply) for reply in await ask(asked)]
            facts["condensed"] = short = read_short_form(replies, question, answer, language)
            return short

        # A language model that compares may be one that can compare short answers only.
        long = setting.around_pair > 0 and too_long_to_compare(prompts, answer, language)
        verdict: str
        verdict, how = await verdict_of(answer, view.short_references, meanings, shorten if long else None)
        if verdict == "correct" and not await self._supported(view, ask, facts, by_words=how in BY_WORDS):
            verdict = "correct, unsupported"
        read = Reading(VALUES[verdict], 0.0, facts)
        about: dict[str, Any] = {"reference_source": "gold", "references": view.short_references}
        writer.add("answer_correct", read, who="judge", label=verdict, explanation=how, **about)

    async def _supported(self, view: View, ask: Ask, facts: dict[str, int | str], *, by_words: bool) -> bool:
        """Returns whether the model got a passage that is relevant to the query which brought it, or one without text,
        such as an image, which may hold the answer. With `by_words`, if a judge can never tell: one with a
        reference, which the facts say."""
        setting = view.setting
        got = [(step, at) for step in view.steps for at in step.got]
        judged = await judge_passages(
            [(view.query_of(step), step.all[at].text) for step, at in got if at in step.judged],
            ask, setting.prompts, setting.judge_prompts, probes=["relevance"], question=view.run.question,
            references=view.references,
        )  # fmt: skip
        if any(at in step.textless for step, at in got):
            return True
        known = [one for one in judged if not isinstance(one.relevance, RagguardError)]
        # Without a passage that is known to be relevant, an error may hide one, and is raised.
        try:
            return any(one.is_relevant for one in known) or any(one.is_relevant for one in judged)
        except RagguardError as error:
            if not by_words or worth_repeating(error):
                raise
        facts["support"] = "by words"
        return supported_by_words(view)
