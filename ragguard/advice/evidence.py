"""The evidence for advice (coverage, contradictions, the reader's answers, the use of the last step) and its judgement.

It puts the same questions as the scorers do, so that the engine's cache answers what live scoring has asked already.
It never sees a reference, a pool or the run's answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragguard.advice.calibration import AdviceCalibration
from ragguard.advice.sub_questions import rate
from ragguard.errors import RagguardError, shown_apart
from ragguard.facts.contradictions import Conflict
from ragguard.facts.steps import StepView, numbered
from ragguard.facts.verdicts import utility_verdict
from ragguard.records import Advice, AdviceAction
from ragguard.scorers.answers import verdict_of
from ragguard.scorers.contested import Contested, find_conflicts, is_sure
from ragguard.scorers.contexts import window
from ragguard.scorers.coverage import find_sub_questions
from ragguard.scorers.estimates import Meanings
from ragguard.scorers.passages import Judgement, judge_passages
from ragguard.scorers.probes import Reading, greedy
from ragguard.scorers.question import Ask, answered
from ragguard.scorers.view import Setting, View

THRESHOLD = 0.5
"""The sufficiency from which the action is `answer` where nothing was calibrated."""
SHOWN = 120
"""How many characters of a sub-question or an answer a reason shows."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The findings about the retrieved passages after a step, none of which needs a reference answer."""

    sub_questions: tuple[str, ...]
    covered: tuple[int, ...]
    """The number of the first turn whose passages answer each sub-question, from 1; 0 for one that is open."""
    turns: int
    """How many turns of retrieval there were."""
    conflicts: tuple[Conflict, ...]
    """Passages that contradict each other about a sub-question, where the reader would answer from either."""
    redundancy: float | None
    """The share of what the last turn answers that earlier turns had answered; None where it answers nothing."""
    p_answer: float
    """The probability that the reader, given all that was read, answers the question instead of abstaining."""
    utilities: tuple[float, ...]
    """The utility of each passage of the last turn for the query that brought it."""
    turns_without_help: int = 0
    """How many of the last turns, in a row, brought no passage that helps with its query."""
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
    def numbers(self) -> dict[str, float]:
        """The numbers by name, as advice carries them."""
        before = sum(0 < turn < self.turns for turn in self.covered) / len(self.sub_questions)
        found = {
            "coverage": self.coverage,
            "delta_coverage": self.coverage - before,
            "contested": len({one.sub_question for one in self.conflicts}) / len(self.sub_questions),
            "p_answer": self.p_answer,
            "turns_without_help": float(self.turns_without_help),
        }
        if self.redundancy is not None:
            found["redundancy"] = self.redundancy
        if self.utilities:
            found |= {"best_utility": max(self.utilities), "worst_utility": min(self.utilities)}
        return found


@dataclass(slots=True)
class _ReadPassage:
    """A passage that the model read, with what is found about it."""

    turn: int
    """The number of the turn that brought it, from 1."""
    query: str
    text: str
    judgement: Judgement = Judgement()  # noqa: RUF009 - frozen
    """The models' judgement for the query that brought the passage."""

    @property
    def relevant(self) -> bool:
        """True if it is known to be relevant."""
        return isinstance(self.judgement.relevance, Reading) and self.judgement.is_relevant


async def find_evidence(contested: Contested, view: View, ask: Ask) -> Evidence:
    """Asks for the evidence about a run as it stands: which passages are relevant, then what these answer and do for
    the reader, then what contradicts. Of the other passages those of a last turn that brought nothing relevant are
    asked about alone: they may mislead. Raises ProbeFailed, before anything is asked, if a model failed its examination
    in what advice rests on."""
    setting, turns = view.setting, _turns(view)
    setting.exam.check("abstention", "relevance", "ratings")
    read = [
        _ReadPassage(turn, view.query_of(step), step.all[at].text)
        for turn, steps in enumerate(turns, 1)
        for step in steps
        for at in step.got
        if at in step.judged
    ]
    asked, errors = await asyncio.gather(find_sub_questions(view, ask), _find_relevant(read, setting, ask))
    sub_questions = asked[: setting.caps.sub_questions]
    relevant = [one for one in read if one.relevant]
    last = [one for one in read if one.turn == len(turns)]
    weighed = relevant if any(one.relevant for one in last) else [*relevant, *last]
    rating = rate(sub_questions, [one.text for one in relevant], contested.eta, view, ask)
    asked_about = [
        (view.run.question, *window(view)(view.steps).passages),
        *((one.query, one.text) for one in weighed),
    ]
    (whole, *judged), ratings = await asyncio.gather(
        judge_passages(asked_about, ask, setting.prompts, setting.judge_prompts, probes=["abstention"]),
        rating,
    )
    errors += _errors_of([cell for row in ratings.rows.values() for cell in row])
    errors += _errors_of([judgement.abstention for judgement in judged])
    for one, judgement in zip(weighed, judged, strict=True):
        one.judgement = replace(one.judgement, abstention=judgement.abstention)
    readable = [one for one in relevant if isinstance(one.judgement.abstention, Reading)]
    sure = dict.fromkeys(one.text for one in readable if is_sure(one.judgement))
    utilities = {id(one): one.judgement.utility(setting.relevance) for one in weighed}
    conflicts = []
    if "entailment" in setting.exam.failed:
        errors.append(setting.exam.error("entailment"))
    else:
        conflicts = await find_conflicts(contested, view, ratings, ask, sure)
    by_turn: list[set[int]] = [set() for _ in turns]
    for one in relevant:
        by_turn[one.turn - 1].update(ratings.answered_by(one.text, contested.eta))
    before = set[int]().union(*by_turn[:-1])
    unjudged = dict.fromkeys(map(str, errors))
    if view.steps_over_cap:
        most = setting.caps.steps
        unjudged[f"only the first {most} steps are judged; raise Caps(steps=...)"] = None
    return Evidence(
        ratings.sub_questions,
        tuple(
            next((turn for turn, numbers in enumerate(by_turn, 1) if number in numbers), 0)
            for number in range(len(sub_questions))
        ),
        len(turns),
        tuple(conflicts),
        redundancy=len(by_turn[-1] & before) / len(by_turn[-1]) if by_turn[-1] else None,
        p_answer=whole.p_answers,
        utilities=tuple(u for one in last if (u := utilities.get(id(one))) is not None),
        turns_without_help=len(turns)
        - max(
            (one.turn for one in weighed if utility_verdict(utilities[id(one)] or 0.0) == "helps"), default=0
        ),
        unjudged=tuple(unjudged),
    )


async def _find_relevant(read: Sequence[_ReadPassage], setting: Setting, ask: Ask) -> list[RagguardError]:
    """Asks which passages are relevant to the queries that brought them; returns why single ones are not judged."""
    asked = [(one.query, one.text) for one in read]
    judged = await judge_passages(asked, ask, setting.prompts, setting.judge_prompts, probes=["relevance"])
    for one, judgement in zip(read, judged, strict=True):
        one.judgement = judgement
    return _errors_of([judgement.relevance for judgement in judged])


def _errors_of(judgements: Sequence[object]) -> list[RagguardError]:
    """Returns why single judgements failed; raises the first error where all did."""
    errors = [one for one in judgements if isinstance(one, RagguardError)]
    if errors and len(errors) == len(judgements):
        raise errors[0]
    return errors


async def correctness(view: View, ask: Ask) -> float:
    """Asks the reader for its likeliest answer with what was read so far; returns 1 where it means a reference, else 0.

    For calibration alone, where the references are known.
    """
    question, context = view.run.question, window(view)(view.steps)
    asked = greedy(
        view.setting.prompts, question, context.passages, cut_order=context.cut_order, seed=view.seed
    )
    samples = answered((await ask([asked]))[0]).samples
    meanings = Meanings(question, ask, view.setting.language)
    verdict, _ = await verdict_of(samples[0].text if samples else "", view.short_references, meanings)
    return float(verdict == "correct")


def _turns(view: View) -> list[list[StepView]]:
    """Returns the steps turn by turn; a turn that retrieved nothing is empty."""
    over = {step.id for step in view.steps_over_cap}
    turns: dict[int, list[StepView]] = {
        turn: [] for turn, step in numbered(view.run.steps) if step.id not in over
    }
    for step in view.steps:
        turns[step.turn].append(step)
    return list(turns.values())


def sufficiency(evidence: Evidence) -> float:
    """Returns how far what was read suffices, from 0 to 1.

    It is the product of the probability that the reader answers instead of abstaining, and of the coverage of the
    sub-questions. Contradictions are no part of it: on hard questions they are most frequent where all was found.
    """
    return evidence.p_answer * evidence.coverage


def judge(evidence: Evidence, calibration: AdviceCalibration | None) -> Advice:
    """Returns the verdict. With a calibration `answer` depends on the sufficiency alone, since the promise is about
    that rule; without one nobody knows what a contradiction costs, and the action is `distrust`."""
    enough = sufficiency(evidence)
    threshold = THRESHOLD if calibration is None else calibration.threshold
    gain, stderr = _expected_gain(evidence)
    shown, limit = shown_apart(enough, threshold)
    how = f"sufficiency {shown}, {'at least' if enough >= threshold else 'under'} {limit}"
    best, worst = max(evidence.utilities, default=0.0), min(evidence.utilities, default=0.0)
    helps = utility_verdict(best) == "helps"
    contradictions = [
        f"passages contradict each other: {one.first_answer[:SHOWN]!r} against {one.second_answer[:SHOWN]!r} "
        f"({evidence.sub_questions[one.sub_question][:SHOWN]})"
        for one in evidence.conflicts[:1]
    ]
    action: AdviceAction = "continue"
    reasons = [how, *_open(evidence)]
    if enough >= threshold and not (contradictions and calibration is None):
        closed = [] if evidence.open else [f"passages answer all {len(evidence.sub_questions)} sub-questions"]
        action, reasons = "answer", [how, *closed, *contradictions]
    elif contradictions:
        action, reasons = "distrust", [*contradictions, *reasons]
    elif not helps and utility_verdict(worst) == "misleads":
        why = f"a passage of the last step misleads (utility {worst:.2f}) and none helps"
        action, reasons = "distrust", [why, *reasons]
    elif not helps:
        action, reasons = "rephrase", ["no passage of the last step helps with its query", *reasons]
    return Advice(action, evidence.open, gain, stderr, reasons=reasons, calibrated=calibration is not None)


def _open(evidence: Evidence) -> list[str]:
    found = [f"open: {text[:SHOWN]}" for text in evidence.open]
    if not evidence.open and evidence.p_answer < 0.5:
        found.append(f"the model would still abstain: it answers with probability {evidence.p_answer:.2f}")
    if evidence.unjudged:
        found.append(f"not all passages could be judged: {evidence.unjudged[0]}")
    return found


def _expected_gain(evidence: Evidence) -> tuple[float, float]:
    """Returns what one more step is expected to add to the coverage, from this run alone, and its standard error.

    Each turn so far either closed an open sub-question or did not. With a uniform prior, the probability that the next
    one does has a Beta distribution; what it then adds is one sub-question.
    """
    if not evidence.open:
        return 0.0, 0.0
    closing = len({turn for turn in evidence.covered if turn})
    a, b = 1 + closing, 1 + evidence.turns - closing
    mean, spread = a / (a + b), math.sqrt(a * b / (a + b + 1)) / (a + b)
    return mean / len(evidence.sub_questions), spread / len(evidence.sub_questions)
