"""Scores about utility: what each passage does for the model that reads it, for the step's own query.

There are two questions for each passage: the engine is asked whether it would abstain, the judge whether the passage
answers the query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypedDict

from ragguard.errors import CalibrationError, RagguardError
from ragguard.metrics.answers import query_gain
from ragguard.metrics.distraction import LearnedUdcg, distracting_effect, udcg_of_parts, utility_parts
from ragguard.records import CUT_TOKENS, ReferenceSource, Result, Stage
from ragguard.runtime.arguments import share, true_or_false
from ragguard.scorers.exam.examined import probability
from ragguard.scorers.probes import (
    Abstention,
    Relevance,
    abstention,
    query_likelihood,
    read_abstention,
    read_relevance,
    relevance,
    sees_references,
)
from ragguard.scorers.question import Ask, LabelAnswer, LabelQuestion, TextAnswer, answered, remarks_of_both
from ragguard.scorers.scorer import NEW_SETTING, ScoreWriter, stage_label
from ragguard.scorers.view import StepView, View


class _JudgedPassage(NamedTuple):
    """The gain (0..1) and harm (-1..0) of one passage, and the standard error of their sum."""

    gain: float
    harm: float
    stderr: float | None

    @property
    def utility(self) -> float:
        return self.gain + self.harm


@dataclass(frozen=True, slots=True)
class Utility:
    """Gives `p_abstain`, `p_relevant`, `utility`, `distracting_effect`, `udcg`, `udcg_context`,
    `delta_udcg_selection`, `learned_udcg`."""

    name: ClassVar[str] = "utility"
    version: ClassVar[str] = "2"
    models: ClassVar[tuple[str, ...]] = ("engine", "judge")
    live = "at once"

    soft: bool = False
    """True: relevance counts as a probability, with gain and harm side by side. False: yes or no at 0.5, as in
    the paper."""
    gamma: float = 1 / 3
    """The weight of harm beside gain in UDCG, from 0 to 1."""

    theta: Mapping[str, Any] | None = field(default=None, metadata=NEW_SETTING)
    """Weights for gain and harm by place, as `LearnedUdcg.to_dict` gives them, for `learned_udcg` of lists with as many
    places. None: no such score."""

    def __post_init__(self) -> None:
        true_or_false("Utility.soft", self.soft)
        share("Utility.gamma", self.gamma)
        if self.theta is not None:
            LearnedUdcg.from_dict(self.theta)

    @classmethod
    def fitted(cls, path: str | Path) -> Utility:
        """Returns the scorer with γ and weights by place from a file that `ragguard calibrate --for udcg` wrote."""
        try:
            return cls(**json.loads(Path(path).read_text(encoding="utf-8"))["utility"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CalibrationError(f"{path} cannot be read as a fit of UDCG: {error}") from error

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        writer = ScoreWriter(view, self)
        writer.left_out()
        asked = [(step, at) for step in view.steps for at in sorted(step.judged)]
        questions = [question for step, at in asked for question in self._questions(view, step, at)]
        answers = await ask(questions)
        judged: dict[tuple[str, int], _JudgedPassage] = {}
        for index, (step, at) in enumerate(asked):
            pair = slice(2 * index, 2 * index + 2)
            found = self._passage(writer, step, at, questions[pair], answers[pair])
            if found is not None:
                judged[step.step.id, at] = found
        for step in view.steps_with_empty:
            self._step(writer, step, "passages", judged)
            if step.changed:
                self._step(writer, step, "candidates", judged)
                self._selection(writer, step, judged)
        self._context(writer, judged)
        return writer.results()

    def _questions(self, view: View, step: StepView, at: int) -> tuple[LabelQuestion, LabelQuestion]:
        query, text = view.query_of(step), step.all[at].text
        return (
            abstention(view.setting.prompts, query, text),
            relevance(
                view.setting.judge_prompts,
                query,
                text,
                question=view.run.question,
                references=view.references,
            ),
        )

    def _passage(
        self,
        writer: ScoreWriter,
        step: StepView,
        at: int,
        questions: Sequence[LabelQuestion],
        answers: Sequence[LabelAnswer | RagguardError],
    ) -> _JudgedPassage | None:
        abstains: Abstention | None = None
        relevant: Relevance | None = None
        try:
            abstains = read_abstention(answered(answers[0]))
            writer.add(
                "p_abstain", abstains.p, step=step, at=at, stderr=abstains.stderr,
                metadata=abstains.remarks, usage=abstains.usage,
            )  # fmt: skip
        except RagguardError as error:
            writer.fail(error, f"p_abstain of passage {at + 1}", step)
        try:
            relevant = read_relevance(questions[1], answered(answers[1]))
            writer.add(
                "p_relevant", relevant.p, step=step, at=at, who="judge", stderr=relevant.stderr,
                metadata=relevant.remarks, usage=relevant.usage, **_reference_fields(writer.view, step),
            )  # fmt: skip
        except RagguardError as error:
            writer.fail(error, f"p_relevant of passage {at + 1}", step)
        if abstains is None or relevant is None:
            return None
        return self._utility(writer, step, at, abstains, relevant)

    def _utility(
        self, writer: ScoreWriter, step: StepView, at: int, abstains: Abstention, relevant: Relevance
    ) -> _JudgedPassage:
        r = relevant.p if self.soft else float(relevant.p >= 0.5)
        gain, harm = (float(part) for part in utility_parts(r, abstains.p))
        stderr = abstains.stderr
        if self.soft and stderr is not None:
            # d/dp and d/dr of (2r - 1)(1 - p).
            of_r = None if relevant.stderr is None else 2 * (1 - abstains.p) * relevant.stderr
            stderr = None if of_r is None else math.hypot((2 * r - 1) * stderr, of_r)
        found = _JudgedPassage(gain, harm, stderr)
        label = "relevant" if relevant.p >= 0.5 else "not relevant"
        seen, judge = _reference_fields(writer.view, step), _judge(writer.view)
        writer.add(
            "utility", found.utility, step=step, at=at, stderr=stderr, label=label,
            metadata={**remarks_of_both(abstains.remarks, relevant.remarks), **judge}, **seen,
        )  # fmt: skip
        if relevant.p < 0.5:
            writer.add(
                "distracting_effect", float(distracting_effect(abstains.p)), step=step, at=at,
                stderr=abstains.stderr, label=label, metadata={**abstains.remarks, **judge}, **seen,
            )  # fmt: skip
        return found

    def _step(
        self, writer: ScoreWriter, step: StepView, stage: Stage, judged: dict[tuple[str, int], _JudgedPassage]
    ) -> None:
        """Adds UDCG over the K places of one list of a step; a passage that a guard dropped leaves its place empty."""
        wanted, k = step.listed(stage), 1 if step.any_k else step.judged_places(stage)
        found = [judged.get((step.step.id, at)) for at in wanted if at in step.judged]
        known = [passage for passage in found if passage is not None]
        if not k or len(known) < len(found):
            # UDCG over only a part of the passages would mean something else; the failures name the others.
            return
        value, stderr = self._udcg(known, k)
        writer.add(
            "udcg", value, step=step, stage=stage, stderr=stderr,
            label=stage_label(step, stage),
            metadata={
                **({} if step.any_k else {"k": k}),
                "kept": len(known), "not_judged": len(wanted) - len(known), **_judge(writer.view),
            },
            **_reference_fields(writer.view, step),
        )  # fmt: skip
        if self.theta is None or step.any_k or k != self.theta["k"]:
            return
        utilities = [passage.utility for passage in known] + [0.0] * (k - len(known))
        writer.add(
            "learned_udcg", float(LearnedUdcg.from_dict(self.theta)(utilities)), step=step, stage=stage,
            label=stage_label(step, stage), metadata={"k": k, **_judge(writer.view)},
            **_reference_fields(writer.view, step),
        )  # fmt: skip

    def _selection(
        self, writer: ScoreWriter, step: StepView, judged: dict[tuple[str, int], _JudgedPassage]
    ) -> None:
        """Adds UDCG of what the model got less UDCG of all candidates, both over the places of the candidates, so
        that passages which were left out count and empty places do not: the cost of a guard or a reranker."""
        k = step.judged_places("candidates")
        values: list[float] = []
        slopes: dict[int, float] = {}
        lists: tuple[tuple[Stage, float], ...] = (("passages", 1.0), ("candidates", -1.0))
        for stage, sign in lists:
            known = {at: judged.get((step.step.id, at)) for at in step.listed(stage) if at in step.judged}
            there = {at: passage for at, passage in known.items() if passage is not None}
            if not step.places or len(there) < len(known) or len(there) > k:
                return
            value, _ = self._udcg(list(there.values()), k)
            values.append(sign * value)
            for at, passage in there.items():
                weight = 1.0 if passage.utility > 0 else self.gamma
                slopes[at] = slopes.get(at, 0.0) + sign * value * (1 - value) * weight / k
        errors = [judged[step.step.id, at].stderr for at in slopes]
        # The error of a passage in both lists affects both, and cancels as far as its weights in them are equal.
        moved = [slope * (error or 0.0) for slope, error in zip(slopes.values(), errors, strict=True)]
        writer.add(
            "delta_udcg_selection", sum(values), step=step, stderr=None if None in errors else math.hypot(*moved),
            metadata={"k": k, **_judge(writer.view)}, **_reference_fields(writer.view, step),
        )  # fmt: skip

    def _context(self, writer: ScoreWriter, judged: dict[tuple[str, int], _JudgedPassage]) -> None:
        """Adds UDCG over the passages of the final context, each once and at its best (a bridge helps its own hop), and
        over the places that were left empty."""
        best: dict[str, _JudgedPassage] = {}
        missing, empty = 0, writer.view.empty_places
        if empty is None:
            return
        for step in writer.view.steps:
            for at in step.got:
                found, text = judged.get((step.step.id, at)), step.all[at].text
                if found is None and at in step.judged:
                    return
                if found is None:
                    missing += 1
                elif text not in best or found.utility > best[text].utility:
                    best[text] = found
        k = len(best) + empty
        if k or writer.view.read_nothing:
            # Where nothing was retrieved and no K is known, every K gives the same.
            value, stderr = self._udcg(list(best.values()), k or 1)
            writer.add(
                "udcg_context", value, stderr=stderr,
                metadata={
                    **({"k": k} if k else {}),
                    "kept": len(best), "not_judged": missing, **_judge(writer.view),
                },
                **_reference_fields(writer.view, *(writer.view.steps or writer.view.steps_with_empty)),
            )  # fmt: skip

    def _udcg(self, context: Sequence[_JudgedPassage], k: int) -> tuple[float, float | None]:
        """Returns UDCG over k places, of which the passages fill some, and its standard error."""
        gains, harms = [p.gain for p in context], [p.harm for p in context]
        value = float(udcg_of_parts(gains, harms, self.gamma, k=k))
        if any(passage.stderr is None for passage in context):
            return value, None
        weights = [(1.0 if p.utility > 0 else self.gamma) * (p.stderr or 0.0) for p in context]
        return value, value * (1 - value) * math.hypot(*weights) / k


class _ReferenceFields(TypedDict):
    """The fields of a score about the references behind it."""

    reference_source: ReferenceSource
    references: Sequence[str]


def _reference_fields(view: View, *steps: StepView) -> _ReferenceFields:
    """Returns whether the judge saw the references for one of the steps, and which."""
    question, references = view.run.question, view.references
    if any(sees_references(view.query_of(step), question, references) for step in steps):
        return {"reference_source": "gold", "references": references}
    return {"reference_source": "none", "references": ()}


def _judge(view: View) -> dict[str, str]:
    """Returns the fingerprint of the judge where that is another model than the engine: numbers rest on it, too."""
    judge = view.setting.judge.fingerprint
    return {} if judge == view.setting.engine.fingerprint else {"judge": judge}


@dataclass(frozen=True, slots=True)
class QueryFit:
    """Gives `query_gain`, and `p_relevant` where it is known what a gain means for the engine."""

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
        steps = [step for step in view.steps if view.query_of(step).strip()]
        prompts = view.setting.prompts
        queries = list(dict.fromkeys(view.query_of(step) for step in steps))
        passages = [(step, at) for step in steps for at in sorted(step.judged)]
        answers = await ask(
            [query_likelihood(prompts, query) for query in queries]
            + [query_likelihood(prompts, view.query_of(step), step.all[at].text) for step, at in passages]
        )
        alone = dict(zip(queries, answers, strict=False))
        for (step, at), given in zip(passages, answers[len(queries) :], strict=True):
            self._add(writer, step, at, given, alone[view.query_of(step)])
        return writer.results()

    def _add(
        self,
        writer: ScoreWriter,
        step: StepView,
        at: int,
        given: TextAnswer | RagguardError,
        alone: TextAnswer | RagguardError,
    ) -> None:
        with writer.failing(f"query_gain of passage {at + 1}", step):
            text = answered(given)
            gain = query_gain(text.logprobs, answered(alone).logprobs)
            cut = {CUT_TOKENS: text.truncated} if text.truncated else {}
            writer.add("query_gain", gain, step=step, at=at, stderr=0.0, usage=text.usage, metadata=cut)
            exam = writer.view.setting.exam
            if exam.relevance_by_likelihood or (self.relevance and exam.log_odds):
                how = {**cut, "how": "likelihood"}
                writer.add(
                    "p_relevant",
                    probability(exam, gain),
                    step=step,
                    at=at,
                    label="by likelihood",
                    metadata=how,
                )
