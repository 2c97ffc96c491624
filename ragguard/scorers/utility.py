"""Scores about utility: what each passage does for the model that reads it, for the step's own query.

There are two questions for each passage: the engine is asked whether it would abstain, the judge whether the passage
answers the query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ragguard.errors import CalibrationError, RagguardError
from ragguard.facts.steps import StepView
from ragguard.metrics.answers import brings_answer
from ragguard.metrics.distraction import (
    GAMMA,
    RELEVANCES,
    RELEVANT_FROM,
    LearnedUdcg,
    Parts,
    Relevance,
    distracting_effect,
    udcg_of_parts,
    utility,
    utility_parts,
)
from ragguard.records import Result, Stage
from ragguard.runtime.arguments import one_of, share, true_or_false
from ragguard.scorers.contexts import CLOSED_BOOK, single_contexts
from ragguard.scorers.estimates import change_between, likelihoods
from ragguard.scorers.exam.examined import probability
from ragguard.scorers.passages import Judgement, judge_passages, query_gains
from ragguard.scorers.probes import Reading, sees_references
from ragguard.scorers.question import Ask, answered, remarks_of_both
from ragguard.scorers.scorer import NEW_SETTING, ScoreWriter, of_list
from ragguard.scorers.view import View
from ragguard.text.statements.phrases import findable, mentions


@dataclass(frozen=True, slots=True)
class _WeighedPassage:
    """The effect of one passage on the reader."""

    gain: float
    harm: float
    utility: float
    stderr: float | None
    udcg_stderr: float | None
    """The error of what the passage adds to the sum inside UDCG: its gain, and γ times its harm."""


@dataclass(frozen=True, slots=True)
class Utility:
    """Gives `p_abstain`, `p_relevant`, `utility`, `distracting_effect`, `udcg`, `udcg_context`,
    `delta_udcg_selection`, `learned_udcg`; if a model failed its examination in these, `brings_answer`."""

    name: ClassVar[str] = "utility"
    version: ClassVar[str] = "3"
    models: ClassVar[tuple[str, ...]] = ("engine", "judge")
    live = "at once"

    relevance: Relevance = "probability"
    """The form in which relevance counts. `probability`: utility is (2r − 1)(1 − p), and UDCG sums the gain r(1 − p)
    and the harm −(1 − r)(1 − p) of each passage, which do not cancel if the judge is unsure. `binary`: yes or no at
    0.5, as in the paper."""
    gamma: float = GAMMA
    """The weight of harm in UDCG, from 0 to 1; gain has weight 1."""

    theta: Mapping[str, Any] | None = field(default=None, metadata=NEW_SETTING)
    """Weights for gain and harm by place, as `LearnedUdcg.to_dict` gives them, for `learned_udcg` of lists with as many
    places. None: no such score."""

    def __post_init__(self) -> None:
        one_of("Utility.relevance", self.relevance, RELEVANCES)
        share("Utility.gamma", self.gamma)
        if self.theta is not None:
            LearnedUdcg.from_dict(self.theta)

    @classmethod
    def fitted(cls, path: str | Path) -> Utility:
        """Returns the scorer with γ, weights by place and the form of relevance from a file that
        `ragguard calibrate --for udcg` wrote."""
        try:
            settings = json.loads(Path(path).read_text(encoding="utf-8"))["utility"]
            return cls(**{"relevance": "binary", **settings})  # which files of before do not name
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CalibrationError(f"{path} cannot be read as a fit of UDCG: {error}") from error

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        question, references, setting = view.run.question, view.references, view.setting
        asked = [(step, at) for step in view.steps for at in sorted(step.judged)]
        passages = [(view.query_of(step), step.all[at].text) for step, at in asked]
        judged = await judge_passages(
            passages, ask, setting.prompts, setting.judge_prompts, question=question, references=references
        )
        report = _UtilityReport(self, writer)
        for (step, at), judgement in zip(asked, judged, strict=True):
            report.passage(step, at, judgement)
        for step in view.steps_with_empty:
            report.step(step, "passages")
            if step.changed:
                report.step(step, "candidates")
                report.selection(step)
        report.context()
        await add_answer_evidence(writer, ask)
        return writer.results()


@dataclass(slots=True)
class _UtilityReport:
    """Adds the scores that follow from the answers about the passages."""

    settings: Utility
    writer: ScoreWriter
    judged: dict[tuple[str, int], _WeighedPassage] = field(default_factory=dict)
    """The passages about which both questions were answered, by step and index."""

    def passage(self, step: StepView, at: int, judgement: Judgement) -> None:
        """Adds what is known of a passage."""
        seen, both = self._rests_on(step), list[Reading]()
        with self.writer.failing(f"p_abstain of passage {at + 1}", step):
            both.append(judgement.p_abstain)
            self.writer.add("p_abstain", both[0], step=step, at=at)
        with self.writer.failing(f"p_relevant of passage {at + 1}", step):
            both.append(judgement.p_relevant)
            self.writer.add("p_relevant", both[-1], step=step, at=at, who="judge", **seen)
        if len(both) < 2:
            return
        abstains, relevant = both
        weighed = self.judged[step.step.id, at] = self._weighed(abstains, relevant)
        label = "relevant" if judgement.is_relevant else "not relevant"
        about = {"step": step, "at": at, "label": label, **seen}
        remarks = {**remarks_of_both(abstains.remarks, relevant.remarks), **self._judge}
        self.writer.add("utility", weighed.utility, stderr=weighed.stderr, metadata=remarks, **about)
        if not judgement.is_relevant:
            effect = Reading(float(distracting_effect(abstains.value)), abstains.stderr, abstains.remarks)
            self.writer.add("distracting_effect", effect, metadata=self._judge, **about)

    def _weighed(self, abstains: Reading, relevant: Reading) -> _WeighedPassage:
        """Returns the utility of a passage and its part of UDCG, each with its error to first order."""
        form, gamma = self.settings.relevance, self.settings.gamma
        gain, harm = map(float, utility_parts(relevant.value, abstains.value, form))
        r, of_r = relevant.value, relevant.stderr
        if form == "binary":
            r, of_r = float(r >= RELEVANT_FROM), 0.0

        def error(of_relevant: float, of_other: float) -> float | None:
            """Returns the error of (1 − p)(r · of_relevant + (1 − r) · of_other)."""
            if abstains.stderr is None or of_r is None:
                return None
            by_p = (r * of_relevant + (1 - r) * of_other) * abstains.stderr
            return math.hypot(by_p, (of_relevant - of_other) * (1 - abstains.value) * of_r)

        u = float(utility(relevant.value, abstains.value, form))
        return _WeighedPassage(
            gain=gain, harm=harm, utility=u, stderr=error(1, -1), udcg_stderr=error(1, -gamma)
        )

    def step(self, step: StepView, stage: Stage) -> None:
        """Adds UDCG over the K places of one list of a step; a passage that a guard dropped leaves its place empty."""
        wanted, k, known = step.listed(stage), step.judged_places(stage), self._known(step, stage)
        if not k or known is None:
            # UDCG over only a part of the passages would mean something else; the failures name the others.
            return
        value, stderr = self._udcg(known.values(), k)
        about = {**of_list(step, stage), **self._rests_on(step)}
        facts = {"kept": len(known), "not_judged": len(wanted) - len(known), **self._judge}
        facts |= {"k": k} if step.places else {}
        self.writer.add("udcg", value, stderr=stderr, metadata=facts, **about)
        theta = self.settings.theta
        if theta is None or not step.places or k != theta["k"]:
            return
        columns = np.zeros((2, k))
        columns[:, : len(known)] = np.array([(one.gain, one.harm) for one in known.values()]).reshape(-1, 2).T
        parts = Parts(*columns)
        learned = float(LearnedUdcg.from_dict(theta)(parts))
        self.writer.add("learned_udcg", learned, metadata={"k": k, **self._judge}, **about)

    def selection(self, step: StepView) -> None:
        """Adds UDCG of what the model got less UDCG of all candidates, both over the places of the candidates, so
        that passages which were left out count and empty places do not: the cost of a guard or a reranker."""
        k = step.judged_places("candidates")
        change = 0.0
        slopes: dict[int, float] = {}
        errors: dict[int, float | None] = {}
        lists: tuple[tuple[Stage, float], ...] = (("passages", 1.0), ("candidates", -1.0))
        for stage, sign in lists:
            known = self._known(step, stage)
            if not step.places or known is None or len(known) > k:
                return
            value, _ = self._udcg(known.values(), k)
            change += sign * value
            for at, passage in known.items():
                slopes[at] = slopes.get(at, 0.0) + sign * value * (1 - value) / k
                errors[at] = passage.udcg_stderr
        # The error of a passage in both lists affects both, and cancels as far as its weights in them are equal.
        moved = [slope * (errors[at] or 0.0) for at, slope in slopes.items()]
        stderr = None if None in errors.values() else math.hypot(*moved)
        about = {"step": step, "metadata": {"k": k, **self._judge}, **self._rests_on(step)}
        self.writer.add("delta_udcg_selection", change, stderr=stderr, **about)

    def context(self) -> None:
        """Adds UDCG over the passages of the final context, each once and at its best (a bridge helps its own hop), and
        over the places that were left empty."""
        view = self.writer.view
        best: dict[str, _WeighedPassage] = {}
        missing, empty = 0, view.empty_places
        if empty is None:
            return
        for step in view.steps:
            for at in step.got:
                found, text = self.judged.get((step.step.id, at)), step.all[at].text
                if found is None and at in step.judged:
                    return
                if found is None:
                    missing += 1
                elif text not in best or found.utility > best[text].utility:
                    best[text] = found
        k = len(best) + empty
        if k or view.read_nothing:
            # Where nothing was retrieved and no K is known, every K gives the same.
            value, stderr = self._udcg(best.values(), k or 1)
            facts = {**({"k": k} if k else {}), "kept": len(best), "not_judged": missing, **self._judge}
            seen = self._rests_on(*(view.steps or view.steps_with_empty))
            self.writer.add("udcg_context", value, stderr=stderr, metadata=facts, **seen)

    def _known(self, step: StepView, stage: Stage) -> dict[int, _WeighedPassage] | None:
        """Returns the judged passages of one list of a step; None where one lacks an answer."""
        found = {at: self.judged.get((step.step.id, at)) for at in step.listed(stage) if at in step.judged}
        there = {at: passage for at, passage in found.items() if passage is not None}
        return there if len(there) == len(found) else None

    def _udcg(self, context: Collection[_WeighedPassage], k: int) -> tuple[float, float | None]:
        """Returns UDCG over k places, of which the passages fill some, and its standard error."""
        gains, harms = [p.gain for p in context], [p.harm for p in context]
        value = float(udcg_of_parts(gains, harms, self.settings.gamma, k=k))
        errors = [passage.udcg_stderr for passage in context]
        if None in errors:
            return value, None
        return value, value * (1 - value) * math.hypot(*(error or 0.0 for error in errors)) / k

    def _rests_on(self, *steps: StepView) -> dict[str, Any]:
        """Returns the references that the judge saw for one of the steps, as fields of a score."""
        view = self.writer.view
        question, references = view.run.question, view.references
        if any(sees_references(view.query_of(step), question, references) for step in steps):
            return {"reference_source": "gold", "references": references}
        return {}

    @property
    def _judge(self) -> dict[str, str]:
        """The fingerprint of the judge where that is another model than the engine: numbers rest on it, too."""
        setting = self.writer.view.setting
        judge = setting.judge.fingerprint
        return {} if judge == setting.engine.fingerprint else {"judge": judge}


@dataclass(frozen=True, slots=True)
class QueryFit:
    """Gives `query_gain`; also `p_relevant` if it is known what a gain means for the engine, and `brings_answer` if the
    engine may not judge passages."""

    name: ClassVar[str] = "fit"
    version: ClassVar[str] = "1"
    models: ClassVar[tuple[str, ...]] = ("engine",)
    live = "at once"

    relevance: bool = False
    """True to give `p_relevant` for any examined engine; False for those alone whose labels failed, of which the
    scorer utility gives the same number."""

    def __post_init__(self) -> None:
        true_or_false("QueryFit.relevance", self.relevance)

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        exam = view.setting.exam
        steps = [step for step in view.steps if view.query_of(step).strip()]
        asked = [(step, at) for step in steps for at in sorted(step.judged)]
        passages = [(view.query_of(step), step.all[at].text) for step, at in asked]
        for (step, at), gain in zip(
            asked, await query_gains(view.setting.prompts, passages, ask), strict=True
        ):
            with writer.failing(f"query_gain of passage {at + 1}", step):
                fit = answered(gain)
                writer.add("query_gain", fit, step=step, at=at)
                if exam.relevance_by_likelihood or (self.relevance and exam.log_odds):
                    read = Reading(probability(exam, fit.value), None, {**fit.remarks, "how": "likelihood"})
                    writer.add("p_relevant", read, step=step, at=at, label="by likelihood")
        await add_answer_evidence(writer, ask)
        return writer.results()


async def add_answer_evidence(writer: ScoreWriter, ask: Ask) -> None:
    """Adds `brings_answer` of each passage of a run with short references, if the models may not judge passages: they
    still tell how probable they find a reference with and without a passage, and words are compared for nothing."""
    view = writer.view
    references = view.short_references
    if not references or not view.setting.exam.lacking("abstention", "relevance"):
        return
    phrases = findable(references)
    passages = [(step, at, step.all[at].text) for step in view.steps for at in sorted(step.judged)]
    beliefs = await likelihoods(view, single_contexts(text for *_, text in passages), references, ask)
    for step, at, text in passages:
        gain: float | None = None
        with suppress(RagguardError):  # without the probability of the references, the words alone tell
            gain = change_between(beliefs, CLOSED_BOOK, (text,), "mean_logprob")
        stands = mentions(text, phrases)
        facts: dict[str, int | str] = {"how": "words"} if gain is None else {}
        writer.add(
            "brings_answer", Reading(brings_answer(stands, gain), None, facts), step=step, at=at,
            label="has a reference" if stands else "", reference_source="gold", references=references,
        )  # fmt: skip
