"""Judges have the AUC that is stated, on cases that they were not calibrated on."""

import numpy as np
import pytest

from ragguard import connect, world
from ragguard.errors import InvalidInput
from ragguard.metrics.agreement import auc
from studies.label_noise import LabelNoise
from studies.weak_judges import (
    QUESTIONS,
    STRENGTHS,
    judgements,
    scale_for,
    scales_for,
    verdicts,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine():
    return connect("nano")


@pytest.mark.parametrize("strength", STRENGTHS)
async def test_the_stated_auc_is_reached_on_held_out_cases(engine, strength) -> None:
    held_out = world.cases(120, seed=99)
    scales = await scales_for(engine, strength)
    for question in QUESTIONS:
        _, p, positive = await judgements(engine, question, held_out)
        assert auc(verdicts(p, question), positive) > 0.99
        reached = []
        for seed in range(8):
            _, p, _ = await judgements(LabelNoise(engine, scales, seed), question, held_out)
            reached.append(auc(verdicts(p, question), positive))
        assert np.mean(reached) == pytest.approx(strength, abs=0.01 + 0.15 * (1 - strength)), question


def test_noise_makes_no_judge_better() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, (400, 2))
    positive = rng.random(400) < p[:, 0] / p.sum(axis=1)
    own = auc(p[:, 0] / p.sum(axis=1), positive)
    assert scale_for(p, positive, own) == 0
    with pytest.raises(InvalidInput, match="the engine's own AUC"):
        scale_for(p, positive, own + 0.05)
    with pytest.raises(InvalidInput, match=r"over 0.5"):
        scale_for(p, positive, 0.5)
    assert scale_for(p, positive, own - 0.05) > 0
