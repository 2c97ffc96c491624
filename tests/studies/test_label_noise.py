"""A judge with noise on its log-odds: the same for equal seeds and prompts, and noise of the stated scale."""

import numpy as np
import pytest
from support.scripted_engine import ScriptedEngine

from studies.label_noise import LabelNoise, tilted

LABELS = ("A", "B")
PROMPTS = [f"Question {number}?" for number in range(2000)]


def fixed():
    """An engine that gives every prompt the same probabilities."""
    return ScriptedEngine(lambda text, label: {"A": 0.6, "B": 0.2}[label])


def log_odds(p):
    return np.log(p[:, 0] / p[:, -1])


async def test_log_odds_get_noise_of_the_stated_scale() -> None:
    judge = LabelNoise(fixed(), {LABELS: 1.5})
    found = (await judge.label_probs(PROMPTS, LABELS)).p
    noise = log_odds(found) - np.log(3)
    assert noise.std() == pytest.approx(1.5, abs=0.1)
    assert noise.mean() == pytest.approx(0, abs=0.15)
    assert found.sum(axis=1) == pytest.approx(np.full(len(PROMPTS), 0.8))


async def test_noise_depends_on_seed_and_prompt_alone() -> None:
    judge, same, other = (LabelNoise(fixed(), {LABELS: 1.0}, seed) for seed in (1, 1, 2))
    whole = (await judge.label_probs(PROMPTS[:50], LABELS)).p
    alone = np.concatenate(
        [(await same.label_probs([prompt], LABELS)).p for prompt in reversed(PROMPTS[:50])]
    )
    assert np.array_equal(whole, alone[::-1])
    assert not np.isclose(whole, (await other.label_probs(PROMPTS[:50], LABELS)).p).any()


def test_ratings_shift_as_a_whole() -> None:
    """A draw moves the middle label's log-odds against each end by half as much as those of the ends."""
    p = np.array([[0.5, 0.3, 0.2]])
    found = tilted(p, 2.0, [1.0])
    assert np.log(found[0, 0] / found[0, 2]) == pytest.approx(np.log(2.5) + 2)
    assert np.log(found[0, 0] / found[0, 1]) == pytest.approx(np.log(5 / 3) + 1)
    assert np.isfinite(tilted([[1.0, 0.0]], 3.0, [-2.0])).all()
