"""Scores about belief: how much of the reader's belief is in the right answer (SePer), and over how many answers it
spreads (entropy).

Answers are drawn without retrieval, after each step, and for each step alone. The references are gold, else the run's
own answer; then the scores measure support for what was said, and not whether it is true.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ragguard.errors import RagguardError, ScoringError
from ragguard.metrics.answers import is_abstention
from ragguard.records import CUT_TOKENS, LEFT_OUT, ReferenceSource, Result, Usage
from ragguard.runtime.arguments import one_of, share, true_or_false, whole_number
from ragguard.scorers.contexts import (
    CLOSED_BOOK,
    BeliefContext,
    Change,
    Key,
    Layout,
    StepContexts,
    lay_out,
    window,
)
from ragguard.scorers.estimates import (
    BeliefIn,
    Estimate,
    Estimator,
    Kernel,
    LikelihoodIn,
    OverReferences,
    Weights,
    combine,
    likelihoods,
)
from ragguard.scorers.meanings import Equivalence, Match, Meanings
from ragguard.scorers.probes import belief, condensation, read_condensation
from ragguard.scorers.question import Ask, SampleAnswer, SampleQuestion, answered, count_tokens
from ragguard.scorers.scorer import NEW_SETTING, ScoreWriter
from ragguard.scorers.view import LONG_FORM_TOKENS, StepView, View
from ragguard.text.language import normalise

By = Literal["samples", "likelihood", "auto"]
_SURE = 0.8
"""The least probability of the references, as whole texts, for which no answers are drawn. The belief is then known to
lie between that probability and 1, an error no larger than that of ten sampled answers."""


@dataclass(frozen=True, slots=True)
class Target:
    """The answers against which beliefs are measured."""

    references: tuple[str, ...] = ()
    source: ReferenceSource = "none"
    given: tuple[str, ...] = ()
    """The references as the run has them, before a long answer is shortened."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Facts for the reader of a score: the answer as it was shortened."""
        return {"condensed": self.references[0]} if self.references != self.given else {}


class _Wanted(NamedTuple):
    """A score to give: a change between contexts, of one kind of estimate."""

    name: str
    change: Change
    contexts: StepContexts | None = None
    """The contexts of the step that the score is about; None for the run."""
    kind: Literal["soft", "hard", "entropy", "per_token", "total", "mean_logprob"] = "soft"


@dataclass(frozen=True, slots=True)
class Belief:
    """Gives `seper`, `seper_hard`, `delta_seper`, `delta_seper_alone`, `delta_seper_selection`, `semantic_entropy`
    and the scores that follow from them; with `by="likelihood"` the likelihoods of the references instead."""

    name: ClassVar[str] = "belief"
    version: ClassVar[str] = "2"
    live = "so far"

    samples: int = 10
    """How many answers are drawn in each context. More give a smaller standard error and cost more."""
    equivalence: Equivalence = "threshold"
    """The rule by which two answers mean the same: entailment both ways of at least `tau` (`threshold`), or entailment
    the most probable relation both ways (`strict`)."""
    match: Match = "loose"
    """The rule by which a meaning is the reference's: no contradiction and not both neutral (`loose`), or as
    `equivalence` says (`bi`)."""
    tau: float = 0.5
    """The least entailment, from 0 to 1, that counts with `equivalence="threshold"`."""
    weights: Weights = "mean"
    """The weight of an answer: by the mean log-probability of its tokens (`mean`), by their sum (`sum`), or all alike
    (`count`)."""
    kernel: Kernel = "max"
    """How far an answer means a reference: the larger entailment of both directions (`max`), or from answer to
    reference alone (`forward`)."""
    over_references: OverReferences = "best"
    """The way to join several references: the belief in the best one (`best`), or the mean over all (`mean`)."""

    selection: bool = True
    """True to draw answers also with all that a step retrieved where the model got something else: what a guard, a
    reranker or a compressor did to the belief (`delta_seper_selection`). One context more for each such step."""

    by: By = field(default="samples", metadata=NEW_SETTING)
    """The way to measure belief: from sampled answers that are compared with the references (`samples`), or from how
    probable the model finds the references (`likelihood`): one prompt for each context and reference, no entailer; or
    from both (`auto`): answers are drawn where the references are less probable than 0.8, half of `samples` at first,
    and the others where some of these are a reference, word for word, and some are not."""

    def __post_init__(self) -> None:
        whole_number("Belief.samples", self.samples, 1)
        share("Belief.tau", self.tau)
        true_or_false("Belief.selection", self.selection)
        for name, allowed in (
            ("equivalence", Equivalence), ("match", Match), ("weights", Weights), ("kernel", Kernel),
            ("over_references", OverReferences), ("by", By),
        ):  # fmt: skip
            one_of(f"Belief.{name}", getattr(self, name), get_args(allowed))

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out(passages=False)
        turns = [
            (turn, step)
            for turn, step in view.turns_with_empty
            if step.readable or step.empty or (self.selection and step.changed and step.unselected.readable)
        ]
        if not turns:
            return writer.results()
        if not view.run.question.strip():
            writer.fail(
                ScoringError("beliefs are about the run's question, and this run has none"), "beliefs"
            )
            return writer.results()
        setting = view.setting
        fit = window(setting.prompts, setting.engine.context, task="answer", question=view.run.question)
        target = _target(writer)
        if self.by == "likelihood":
            if target.references:
                await _score_likelihoods(writer, lay_out(turns, fit), target, ask)
            return writer.results()
        layout = lay_out(turns, fit, selection=self.selection)
        sure: dict[Key, BeliefIn] = {}
        if self.by == "auto" and target.references and "continuations" in setting.engine.capabilities:
            known = await _score_likelihoods(writer, layout, target, ask)
            sure = {key: _sure(p) for key, p in known.items() if p >= _SURE}
        if "entailment" in setting.exam.failed:
            writer.fail(setting.exam.error("entailment"), "beliefs from answers")
            return writer.results()
        drawn, target = await self._draw(writer, layout, target, ask, sure)
        meanings = Meanings(
            view.run.question, ask, setting.language, self.equivalence, match=self.match, tau=self.tau
        )
        if target.source == "answer":
            # While the run was open it had no answer; pairs keep the spelling of that time, so that the cache has them.
            for answer in drawn.values():
                meanings.spell(() if isinstance(answer, RagguardError) else answer.samples)
        estimator = Estimator(self.weights, self.kernel, self.over_references)
        beliefs = {**await estimator.beliefs(drawn, target.references, meanings), **sure}
        _BeliefReport(writer, layout, target, beliefs).write(self._wanted(layout, target))
        return writer.results()

    async def _draw(
        self, writer: ScoreWriter, layout: Layout, target: Target, ask: Ask, sure: Container[Key]
    ) -> tuple[dict[Key, SampleAnswer | RagguardError], Target]:
        """Draws answers in every context that a score is about, but for the `sure` ones, and shortens a long answer to
        compare them with, in one wave of questions; with `auto` there is a second one where the answers are mixed."""
        view = writer.view
        used = {key for wanted in self._wanted(layout, target) for key in wanted.change}
        contexts = {
            key: context for key, context in layout.contexts.items() if key in used and key not in sure
        }
        first = -(-self.samples // 2) if self.by == "auto" else self.samples

        def question(context: BeliefContext, n: int, seed: int) -> SampleQuestion:
            return belief(
                view.setting.prompts, view.run.question, context.passages,
                cut_order=context.cut_order, n=n, seed=seed,
            )  # fmt: skip

        questions = [question(context, first, view.seed) for context in contexts.values()]
        long = target.source == "answer" and count_tokens(target.references[0]) > LONG_FORM_TOKENS
        if long:
            questions.append(
                condensation(view.setting.judge_prompts, view.run.question, target.references[0], view.seed)
            )
        answers = await ask(questions)
        if long:
            target = _condensed(writer, target, answers.pop())
        drawn = dict(zip(contexts, answers, strict=True))
        open_ = [
            key for key, answer in drawn.items() if first < self.samples and _mixed(answer, target.references)
        ]
        more = [question(contexts[key], self.samples - first, view.seed + 1) for key in open_]
        drawn |= {key: _joined(drawn[key], other) for key, other in zip(open_, await ask(more), strict=True)}
        return drawn, target

    def _wanted(self, layout: Layout, target: Target) -> list[_Wanted]:
        """Returns the scores to give, in order; without references, those about entropy alone."""
        found: list[_Wanted] = []
        if target.references:
            found.append(_Wanted("seper_closed_book", {CLOSED_BOOK: 1.0}))
        for contexts in layout.steps:
            if target.references and contexts.step.changed and self.selection:
                found.append(_Wanted("delta_seper_selection", contexts.selection, contexts))
            if not contexts.step.readable and not contexts.step.empty:
                continue
            now = {contexts.upto: 1.0}
            if target.references:
                found += [
                    _Wanted("seper", now, contexts),
                    _Wanted("seper_hard", now, contexts, "hard"),
                    _Wanted("delta_seper", contexts.change, contexts),
                    _Wanted("delta_seper_alone", _change(contexts.alone), contexts),
                ]
            # Less entropy is a gain: before minus after.
            gain = {key: -coefficient for key, coefficient in contexts.change.items()}
            found += [
                _Wanted("semantic_entropy", now, contexts, "entropy"),
                _Wanted("delta_semantic_entropy", gain, contexts, "entropy"),
            ]
        if target.references:
            found.append(_Wanted("delta_seper_total", layout.total))
        return found


async def _score_likelihoods(
    writer: ScoreWriter, layout: Layout, target: Target, ask: Ask
) -> dict[Key, float]:
    """Adds the scores of likelihood, or their failures; returns the references' probability in each context."""
    found = await likelihoods(writer.view, layout.contexts, target.references, ask)
    wanted = [_Wanted("likelihood_closed_book", {CLOSED_BOOK: 1.0}, kind="per_token")]
    for contexts in layout.steps:
        if not contexts.step.readable and not contexts.step.empty:
            continue
        now = {contexts.upto: 1.0}
        wanted += [
            _Wanted("likelihood", now, contexts, "per_token"),
            _Wanted("likelihood_total", now, contexts, "total"),
            _Wanted("delta_likelihood", contexts.change, contexts, "per_token"),
            _Wanted("delta_likelihood_alone", _change(contexts.alone), contexts, "per_token"),
            _Wanted("log_gain", contexts.change, contexts, "mean_logprob"),
        ]
    wanted.append(_Wanted("delta_likelihood_total", layout.total, kind="per_token"))
    _BeliefReport(writer, layout, target, found).write(wanted)
    return {key: one.total.value for key, one in found.items() if not isinstance(one, RagguardError)}


def _sure(p: float) -> BeliefIn:
    """Estimates the belief from the references' own probability p: the middle of p and 1, with half the gap as its
    error."""
    estimate = Estimate((1 + p) / 2, (1 - p) / 2)
    return BeliefIn(
        Estimate(math.nan, math.nan), estimate, estimate, usage=Usage(), metadata={"how": "likelihood"}
    )


def _mixed(answer: SampleAnswer | RagguardError, references: Sequence[str]) -> bool:
    """Returns whether some of the drawn answers are a reference, word for word, and some are not."""
    wanted = set(map(normalise, references))
    drawn = () if isinstance(answer, RagguardError) else answer.samples
    return len({normalise(one.text) in wanted for one in drawn}) > 1


def _joined(
    answer: SampleAnswer | RagguardError, other: SampleAnswer | RagguardError
) -> SampleAnswer | RagguardError:
    """Returns the answers of two draws as one; the error of the second one where it failed."""
    if isinstance(answer, RagguardError) or isinstance(other, RagguardError):
        return other
    cut = max(answer.truncated, other.truncated)
    return SampleAnswer(answer.samples + other.samples, cut, answer.usage + other.usage)


def _target(writer: ScoreWriter) -> Target:
    """Returns the gold references, else the run's own answer, else no references."""
    view = writer.view
    if view.short_references:
        return Target(view.short_references, "gold", view.short_references)
    if view.references:
        tokens = min(map(count_tokens, view.references))
        writer.fail(
            ScoringError(
                f"the references are long texts (about {tokens} tokens or more; belief is about answers of at most "
                f"{LONG_FORM_TOKENS}): see `answer_coverage` and `coverage`, or give short references"
            ),
            "belief in the references",
        )
        return Target()
    answer = (view.run.answer or "").strip()
    if is_abstention(answer, view.setting.language):
        return Target()
    return Target((answer,), "answer", (answer,))


def _condensed(writer: ScoreWriter, target: Target, answer: SampleAnswer | RagguardError) -> Target:
    try:
        short = read_condensation(answered(answer))
        if count_tokens(short) > LONG_FORM_TOKENS:
            raise ScoringError(
                f"the run's answer is long and was not made shorter than {count_tokens(short)} tokens by the judge"
            )
    except RagguardError as error:
        writer.fail(error, "support for the run's answer")
        return Target()
    if is_abstention(short, writer.view.setting.language):
        return Target()
    return Target((short,), "answer", target.given)


@dataclass(frozen=True, slots=True)
class _BeliefReport:
    """Adds the scores that follow from the beliefs."""

    writer: ScoreWriter
    layout: Layout
    target: Target
    beliefs: Mapping[Key, BeliefIn | LikelihoodIn | RagguardError]
    counted: set[Key] = field(default_factory=set)
    """The contexts whose usage a score has already."""

    def write(self, scores: Sequence[_Wanted]) -> None:
        """Adds the scores, or the failures for which they cannot be given."""
        for wanted in scores:
            self._add(wanted)

    def _add(self, wanted: _Wanted) -> None:
        """Adds one score: the weighted sum, over the contexts of a change, of one kind of estimate."""
        name, change, contexts, kind = wanted
        target = Target() if kind == "entropy" else self.target
        step: StepView | None = contexts.step if contexts else None
        estimates: dict[Key, Estimate] = {}
        for key in change:
            found = self.beliefs[key]
            if isinstance(found, RagguardError):
                self.writer.fail(found, name, step)
                return
            estimate: Estimate | None = getattr(found, kind)
            if estimate is None:
                return
            estimates[key] = estimate
        value, stderr = combine(change, estimates)
        self.writer.add(
            name, value, step=step, stderr=stderr, usage=self._usage(change),
            explanation=_explained(change, estimates, falls=kind == "entropy"),
            label="support" if target.source == "answer" else "",
            reference_source=target.source, references=target.given,
            metadata={**self._metadata(change, contexts), **target.metadata},
        )  # fmt: skip

    def _usage(self, change: Change) -> Usage:
        total = Usage()
        for key in change:
            found = self.beliefs[key]
            if key not in self.counted and not isinstance(found, RagguardError):
                self.counted.add(key)
                total += found.usage
        return total

    def _metadata(self, change: Change, contexts: StepContexts | None) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for key in change:
            found = self.beliefs[key]
            if not isinstance(found, RagguardError):
                cut = max(facts.get(CUT_TOKENS, 0), found.metadata.get(CUT_TOKENS, 0))
                facts |= dict(found.metadata)
                if cut:
                    facts[CUT_TOKENS] = cut
        dropped = max((self.layout.contexts[key].dropped for key in change), default=0)
        if dropped:
            facts[LEFT_OUT] = dropped
        if contexts and contexts.parallel > 1:
            facts["parallel"] = contexts.parallel
            facts["order"] = "tool calls" if contexts.in_call_order else "mean over all"
        if contexts is None and self.writer.view.steps_over_cap:
            facts["steps_not_scored"] = len(self.writer.view.steps_over_cap)
        return facts


def _change(after: Key) -> Change:
    return {after: 1.0, CLOSED_BOOK: -1.0} if after != CLOSED_BOOK else {}


def _explained(change: Change, estimates: Mapping[Key, Estimate], *, falls: bool) -> str:
    """Describes a change between two contexts as "before → after"; with `falls`, a decrease counts as a gain."""
    if not change:
        return "no passage that was not there before"
    if len(change) != 2:
        return ""
    before, after = sorted(change, key=lambda key: change[key], reverse=falls)
    return f"{estimates[before].value:.2f} → {estimates[after].value:.2f}"
