"""Judges of known weakness: how much noise on its log-odds leaves an engine with a stated AUC.

The AUC is that of telling passages that answer a question from others that do not, on one-fact passages of
`ragguard.world`; falsehoods are left out, since nobody can tell one without references. Calibrated are the three
questions that a judge answers: relevance, answerability and grade.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.options import is_quick
from ragguard import world
from ragguard.engines.base import Engine
from ragguard.engines.prompts import PromptSet, load_prompts
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import auc
from ragguard.metrics.arrays import Booleans, Floats
from ragguard.scorers.probes import answerability, grade, relevance
from ragguard.scorers.question import LabelQuestion
from ragguard.world import Case
from studies.label_noise import LabelNoise, tilted

STRENGTHS = (0.99, 0.95, 0.9, 0.8)
"""The AUCs of the judges for which studies show their figures."""
CASES, CASES_SEED = 20 if is_quick() else 250, 7_001
"""The number and the seed of the cases on which noise is calibrated; no study uses that seed."""
QUESTIONS: Mapping[str, Callable[[PromptSet, str, str], LabelQuestion]] = {
    "relevance": relevance,
    "answerability": answerability,
    "grade": grade,
}
_DRAWS, _HALVINGS = 8, 18
_LARGEST = 1e4


async def scales_for(engine: Engine, strength: float) -> dict[tuple[str, ...], float]:
    """Returns by their labels how much noise leaves the engine that AUC in each of a judge's questions.

    `InvalidInput` where the engine itself does not reach that AUC.
    """
    scales = {}
    for name in QUESTIONS:
        labels, p, positive = await judgements(engine, name, world.cases(CASES, seed=CASES_SEED))
        scales[labels] = scale_for(p, positive, strength, name)
    return scales


async def weak_judge(engine: Engine, strength: float, *, seed: int = 0) -> LabelNoise:
    """Returns the engine as a judge of that AUC; see `scales_for`. Another seed gives another judge as strong."""
    return LabelNoise(engine, await scales_for(engine, strength), seed)


async def judgements(
    engine: Engine, question: str, cases: Sequence[Case]
) -> tuple[tuple[str, ...], Floats, Booleans]:
    """Asks an engine one of `QUESTIONS` about the passages of cases, falsehoods and partial answers left out.

    Returns the labels, the probabilities (passages, labels), and which passages answer their case's question.
    """
    prompts = load_prompts((await engine.info()).prompts)
    pairs = [
        (case.question, passage)
        for case in cases
        for passage in case.pool()
        if passage.metadata["kind"] not in ("contradiction", "outdated", "partial")
    ]
    asked = [QUESTIONS[question](prompts, query, passage.text) for query, passage in pairs]
    labels = asked[0].labels
    found = await engine.label_probs([one.prompt for one in asked], labels)
    return labels, found.p, np.array([passage.metadata["kind"] == "gold" for _, passage in pairs])


def verdicts(p: Floats, question: str) -> Floats:
    """Returns one number a row that grows with how well a passage answers: the expected label, or p of the first."""
    shares = p / p.sum(axis=-1, keepdims=True)
    if question == "relevance":
        return np.asarray(shares[:, 0])
    return np.asarray(shares @ np.arange(p.shape[-1], dtype=np.float64))


def scale_for(
    p: Floats, positive: Booleans, strength: float, question: str = "relevance", seed: int = 0
) -> float:
    """Returns the scale of `LabelNoise` that leaves the AUC of these judgements at `strength`, by bisection.

    The AUC at a scale is the mean over seeded draws of the noise, the same for every scale.
    """
    if not 0.5 < strength <= 1:
        raise InvalidInput("strength", strength, "an AUC over 0.5, at most 1")
    draws = np.random.default_rng(seed).standard_normal((_DRAWS, len(p)))

    def reached(scale: float) -> float:
        return float(np.mean([auc(verdicts(tilted(p, scale, row), question), positive) for row in draws]))

    own = auc(verdicts(p, question), positive)
    if own < strength:
        raise InvalidInput(
            "strength",
            strength,
            f"at most {own:.3f}, the engine's own AUC for {question}: noise makes no judge better",
        )
    if own == strength:
        return 0.0
    low, high = 0.0, 1.0
    while reached(high) > strength and high < _LARGEST:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) > strength else (low, middle)
    return (low + high) / 2
