"""Scores about belief: how much of the reader's belief is in the right answer (SePer), and over how many answers it
spreads (entropy).

Answers are drawn without retrieval, after each step, and for each step alone. The references are gold, else the run's
own answer; then the scores measure support for what was said, and not whether it is true.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, get_args

from ragguard.errors import RagguardError, ScoringError
from ragguard.facts.run_facts import SHOWN_INSTEAD
from ragguard.records import Result
from ragguard.runtime.arguments import number_between, one_of, share, true_or_false, whole_number
from ragguard.scorers.belief_scores import (
    Wanted,
    add_enough,
    credit_scores,
    likelihood_scores,
    reference_gain,
    write_scores,
)
from ragguard.scorers.contexts import (
    CLOSED_BOOK,
    Key,
    Layout,
    lay_out,
    window,
)
from ragguard.scorers.estimates import (
    BeliefIn,
    Beliefs,
    Equivalence,
    Estimate,
    Estimator,
    Kernel,
    Kind,
    Match,
    Meanings,
    OverReferences,
    Weights,
    is_mixed,
    likelihoods,
)
from ragguard.scorers.joint import add_joint_gains
from ragguard.scorers.probes import belief, likeliest, read_line
from ragguard.scorers.question import Ask, SampleAnswer, SampleQuestion, answered, count_tokens
from ragguard.scorers.scorer import NEW_SETTING, ScoreWriter
from ragguard.scorers.target import Target, target_of
from ragguard.scorers.view import LONG_FORM_TOKENS, View
from ragguard.text.statements.abstention import is_abstention

By = Literal["samples", "likelihood", "auto"]
_SURE = 0.8
"""The least probability of the references, as whole texts, for which no answers are drawn. The belief is then known to
lie between that probability and 1, an error no larger than that of ten sampled answers."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Gives `seper`, `seper_hard`, `delta_seper`, `delta_seper_alone`, `delta_seper_selection`, `semantic_entropy` and
    the scores that follow from them. Also gives what each hop is worth: `credit` and `loss_without`. With
    `by="likelihood"` it gives the likelihoods of the references instead."""

    name: ClassVar[str] = "belief"
    version: ClassVar[str] = "3"
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
    """How much an answer means a reference: the larger entailment of both directions (`max`), or only from answer to
    reference (`forward`)."""
    over_references: OverReferences = "best"
    """The way to join several references: the belief in the best one (`best`), or the mean over all (`mean`)."""

    selection: bool = True
    """True also draws answers with everything that a step retrieved, if the model got something else. That shows what a
    guard, a reranker or a compressor did to the belief (`delta_seper_selection`), and takes one more context for each
    such step."""

    by: By = field(default="samples", metadata=NEW_SETTING)
    """The way to measure belief: from sampled answers that are compared with the references (`samples`), or from how
    probable the model finds the references (`likelihood`): one prompt for each context and reference, no entailer; or
    from both (`auto`): answers are drawn where the references are less probable than 0.8, half of `samples` at first,
    and the others if some are a reference, word for word, and some are not."""

    def __post_init__(self) -> None:
        whole_number("Belief.samples", self.samples, 1)
        share("Belief.tau", self.tau)
        true_or_false("Belief.selection", self.selection)
        if self.credit is not None and self.credit != 0:
            number_between("Belief.credit", self.credit, 1, 100, "0, or a number from 1 to 100, or None")
        for name, allowed in (
            ("equivalence", Equivalence), ("match", Match), ("weights", Weights), ("kernel", Kernel),
            ("over_references", OverReferences), ("by", By), ("credit_by", Literal["likelihood", "samples"]),
        ):  # fmt: skip
            one_of(f"Belief.{name}", getattr(self, name), get_args(allowed))

    credit: float | None = field(default=None, metadata=NEW_SETTING)
    """The most contexts that `credit` and `loss_without` may read, as a multiple of those that belief reads anyway. 1:
    only runs of one or two hops have credit, which needs no further context. 0: no credit. None: 2 by likelihood, 1.5
    by samples."""

    credit_by: Literal["likelihood", "samples"] = field(default="likelihood", metadata=NEW_SETTING)
    """The belief that credit divides among the hops if answers are drawn: the likelihood, if the engine can give that
    of a text, since it has no noise and takes one prompt a context; or the belief from samples."""

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer, setting = ScoreWriter(view, self), view.setting
        writer.left_out(passages=False)
        steps = [
            step
            for step in view.steps_with_empty
            if step.scored or (self.selection and step.changed and step.unselected.readable)
        ]
        if not steps:
            return writer.results()
        if not view.run.question.strip():
            writer.fail(
                ScoringError("beliefs are about the run's question, and this run has none"), "beliefs"
            )
            return writer.results()
        target = _target(writer)
        if (
            self.by == "likelihood"
            and not target.references
            and not view.references
            # An abstention or a quote is no failure: it gives nothing to believe.
            and not (view.run.answer or "").strip()
            and SHOWN_INSTEAD not in view.run.metadata
            and view.run.status != "open"
        ):
            neither = "the run has neither references nor an answer to be believed"
            writer.fail(ScoringError(f"{neither}; give references"), "likelihood, credit, joint_gain")
        can = self.by == "likelihood" or "continuations" in setting.engine.capabilities
        likely_too = bool(self.by != "samples" and target.references and can)
        trusted = can and self.credit_by == "likelihood" and "likelihood" not in setting.exam.failed
        credit_likely = likely_too or (trusted and self.by == "samples")
        credit = (2.0 if credit_likely else 1.5) if self.credit is None else self.credit
        selected = self.selection and self.by != "likelihood"
        layout = lay_out(steps, window(view), selection=selected, credit=credit if target.references else 0)
        sure: dict[Key, BeliefIn] = {}
        if likely_too:
            likely = await likelihoods(view, layout.contexts, target.references, ask)
            write_scores(writer, layout, target, likely, likelihood_scores(layout))
            add_enough(writer, layout, target, likely, "per_token")
            await add_joint_gains(writer, layout, ask, partial(reference_gain, target, likely))
            sure = _sure(likely)
        if self.by == "likelihood":
            return writer.results()
        if "entailment" in setting.exam.failed:
            writer.fail(setting.exam.error("entailment"), "beliefs from answers")
            return writer.results()
        credited = not credit_likely
        drawn, target = await self._draw(writer, layout, target, ask, sure, credited=credited)
        meanings = Meanings(
            view.run.question, ask, setting.language, self.equivalence, match=self.match, tau=self.tau
        )
        if target.source == "answer":
            # While the run was open it had no answer; pairs keep the spelling of that time, so that the cache has them.
            for answer in drawn.values():
                for sample in answer.samples if isinstance(answer, SampleAnswer) else ():
                    meanings.words(sample.text)
        first = self._first if self.over_references == "best" else 0
        most = (1 + _SURE) / 2 if first and likely_too else 1.0
        estimator = Estimator(self.weights, self.kernel, self.over_references, first, most=most)
        beliefs = await estimator.beliefs(drawn, target.references, meanings) | sure
        write_scores(writer, layout, target, beliefs, self._wanted(layout, target, credited=credited))
        if not likely_too:
            add_enough(writer, layout, target, beliefs, "soft")
        if not likely_too and not credited and target.references:
            # Last, so that what the cap leaves of a run is the beliefs from answers.
            scores = [*credit_scores(layout, "per_token")]
            used = {key: layout.contexts[key] for one in scores for key in one.change or ()}
            likely = await likelihoods(view, used, target.references, ask)
            write_scores(writer, layout, target, likely, scores, more={"how": "likelihood"})
        return writer.results()

    @property
    def _first(self) -> int:
        """The number of answers that are drawn at first with `auto`; 0: all are drawn at once."""
        return -(-self.samples // 2) if self.by == "auto" else 0

    async def _draw(
        self,
        writer: ScoreWriter,
        layout: Layout,
        target: Target,
        ask: Ask,
        sure: Container[Key],
        *,
        credited: bool,
    ) -> tuple[dict[Key, SampleAnswer | RagguardError], Target]:
        """Draws answers in every context that a score is about, but for the `sure` ones, and shortens a long answer to
        compare them with, in one wave of questions; with `auto` there is a second one where the answers are mixed."""
        question, setting, seed = writer.view.run.question, writer.view.setting, writer.view.seed
        scores = self._wanted(layout, target, credited=credited)
        used = {key for wanted in scores for key in wanted.change or ()}
        keys = [key for key in layout.contexts if key in used and key not in sure]
        first = self._first or self.samples

        def asked(key: Key, n: int, seed: int) -> SampleQuestion:
            order = layout.contexts[key].cut_order
            return belief(setting.prompts, question, key, cut_order=order, n=n, seed=seed)

        questions = [asked(key, first, seed) for key in keys]
        long = target.source == "answer" and count_tokens(target.references[0]) > LONG_FORM_TOKENS
        if long:
            said = target.references[0]
            questions.append(
                likeliest(setting.judge_prompts, "condense", seed, question=question, answer=said)
            )
        answers = await ask(questions)
        if long:
            target = _condensed(writer, target, answers.pop())
        drawn = dict(zip(keys, answers, strict=True))
        mixed = [
            key
            for key in keys
            if first < self.samples
            and isinstance(answer := drawn[key], SampleAnswer)
            and any(is_mixed(answer.samples, [reference]) for reference in target.references)
        ]
        more = await ask([asked(key, self.samples - first, seed + 1) for key in mixed])
        drawn |= {key: _joined(answered(drawn[key]), other) for key, other in zip(mixed, more, strict=True)}
        return drawn, target

    def _wanted(self, layout: Layout, target: Target, *, credited: bool) -> Iterator[Wanted]:
        """Yields the scores to give, in order; without references, those about entropy alone."""
        known = bool(target.references)
        if known:
            yield Wanted("seper_closed_book", {CLOSED_BOOK: 1.0})
        for contexts in layout.steps:
            if known and contexts.step.changed and self.selection:
                yield Wanted("delta_seper_selection", contexts.selection, contexts)
            if known and contexts.step.scored:
                yield Wanted("seper", contexts.now, contexts)
                yield Wanted("seper_hard", contexts.now, contexts, "hard")
                yield Wanted("delta_seper", contexts.change, contexts)
                yield Wanted("delta_seper_alone", contexts.alone, contexts)
            if contexts.step.scored:
                # Less entropy is a gain: before minus after.
                gain = {key: -coefficient for key, coefficient in contexts.change.items()}
                yield Wanted("semantic_entropy", contexts.now, contexts, "entropy")
                yield Wanted("delta_semantic_entropy", gain, contexts, "entropy")
        if known:
            yield Wanted("delta_seper_total", layout.total)
            if credited:
                yield from credit_scores(layout, "soft")


def _sure(likely: Beliefs) -> dict[Key, BeliefIn]:
    """Returns the belief in the contexts in which the references are probable enough. It lies between their own
    probability p and 1: the middle, with half the gap as its error."""
    found: dict[Key, BeliefIn] = {}
    for key, known in likely.items():
        if not isinstance(known, BeliefIn) or not known.ended:
            continue
        if (p := known.estimates["total"].value) >= _SURE:
            middle, none = Estimate((1 + p) / 2, (1 - p) / 2), Estimate(math.nan, math.nan)
            estimates: dict[Kind, Estimate] = {"soft": middle, "hard": middle, "entropy": none}
            found[key] = BeliefIn(estimates, {"how": "likelihood"})
    return found


def _joined(answer: SampleAnswer, other: SampleAnswer | RagguardError) -> SampleAnswer | RagguardError:
    """Returns the answers of two draws as one; the error of the second one where it failed."""
    if isinstance(other, RagguardError):
        return other
    cut = max(answer.truncated, other.truncated)
    return SampleAnswer(answer.samples + other.samples, cut, answer.usage + other.usage)


def _target(writer: ScoreWriter) -> Target:
    """Returns the target of the run; notes that long references are none."""
    view, target = writer.view, target_of(writer.view)
    if view.references and not target.references:
        tokens = min(map(count_tokens, view.references))
        writer.fail(
            ScoringError(
                f"the references are long texts (about {tokens} tokens or more; belief is about answers of at most "
                f"{LONG_FORM_TOKENS}): see `answer_coverage` and `coverage`, or give short references"
            ),
            "belief in the references",
        )
    return target


def _condensed(writer: ScoreWriter, target: Target, answer: SampleAnswer | RagguardError) -> Target:
    with writer.failing("support for the run's answer"):
        short = read_line(answered(answer))
        if not 0 < count_tokens(short) <= LONG_FORM_TOKENS:
            raise ScoringError(
                f"the run's answer is long, and the judge made {count_tokens(short)} tokens of it; 1 to "
                f"{LONG_FORM_TOKENS} were asked for"
            )
        if not is_abstention(short, writer.view.setting.language):
            return Target((short,), "answer", target.given)
    return Target()
