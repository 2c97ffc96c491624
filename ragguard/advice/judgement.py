"""The judgement of the evidence: the action, the reasons in words, and what one more step is expected to add."""

from __future__ import annotations

import math
from typing import NamedTuple

from ragguard.advice.calibration import AdviceCalibration
from ragguard.advice.evidence import HELPS, Evidence
from ragguard.errors import shown_apart
from ragguard.records import AdviceAction

THRESHOLD = 0.5
"""The sufficiency from which the action is `answer` where nothing was calibrated."""
SHOWN = 120
"""How many characters of a sub-question or an answer a reason shows."""


class Judgement(NamedTuple):
    """An action with its reasons, and the expected worth of another step."""

    action: AdviceAction
    reasons: list[str]
    expected_gain: float | None
    stderr: float | None


def sufficiency(evidence: Evidence) -> float:
    """Returns how far what was read suffices, from 0 to 1.

    It is the product of the probability that the reader answers instead of abstaining, and of the coverage of the
    sub-questions. Contradictions are no part of it: on hard questions they are most frequent where all was found.
    """
    return evidence.p_answer * evidence.coverage


def judge(evidence: Evidence, calibration: AdviceCalibration | None) -> Judgement:
    """Returns the verdict. With a calibration `answer` depends on the sufficiency alone, since the promise is about
    that rule; without one nobody knows what a contradiction costs, and the action is `distrust`."""
    enough = sufficiency(evidence)
    threshold = THRESHOLD if calibration is None else calibration.threshold
    gain, stderr = _expected_gain(evidence) if calibration is None else calibration.gain_at(enough)
    shown, limit = shown_apart(enough, threshold)
    how = f"sufficiency {shown}, {'at least' if enough >= threshold else 'under'} {limit}"
    if enough >= threshold and not (evidence.conflicts and calibration is None):
        return Judgement("answer", [how, *_closed(evidence), *_contradictions(evidence)], gain, stderr)
    action, why = _otherwise(evidence)
    return Judgement(action, [*why, how, *_open(evidence)], gain, stderr)


def _otherwise(evidence: Evidence) -> tuple[AdviceAction, list[str]]:
    """Returns what to do where what was read does not suffice."""
    best, worst = max(evidence.utilities, default=0.0), min(evidence.utilities, default=0.0)
    if evidence.conflicts:
        return "distrust", _contradictions(evidence)
    if best < HELPS and worst < -HELPS:
        return "distrust", [f"a passage of the last step misleads (utility {worst:.2f}) and none helps"]
    if best < HELPS:
        return "rephrase", ["no passage of the last step helps with its query"]
    return "continue", []


def _contradictions(evidence: Evidence) -> list[str]:
    """Returns the first contradiction between passages in words, whatever the action is."""
    return [
        f"passages contradict each other: {one.first_answer[:SHOWN]!r} against {one.second_answer[:SHOWN]!r} "
        f"({evidence.sub_questions[one.sub_question][:SHOWN]})"
        for one in evidence.conflicts[:1]
    ]


def _closed(evidence: Evidence) -> list[str]:
    return [] if evidence.open else [f"passages answer all {len(evidence.sub_questions)} sub-questions"]


def _open(evidence: Evidence) -> list[str]:
    found = [f"open: {text[:SHOWN]}" for text in evidence.open]
    if not evidence.open and evidence.p_answer < 0.5:
        found.append(
            f"the reader would abstain all the same: it answers with probability {evidence.p_answer:.2f}"
        )
    if evidence.redundancy == 1.0:
        found.append("the last step answers only what was answered before")
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
