"""A judge with noise on its log-odds: the same for equal seeds and prompts, and noise of the stated scale."""

import numpy as np
import pytest

from ragguard import connect
from ragguard.engines.base import LabelProbs, Samples
from ragguard.errors import InvalidInput
from studies.label_noise import LabelNoise, tilted

LABELS = ("A", "B")
PROMPTS = [f"Question {number}?" for number in range(2000)]


class Fixed:
    """Gives every prompt the same probabilities: 0.6, 0.2 and 0.1 for the first three labels."""

    async def sample(
        self, prompts, n=10, max_tokens=64, temperature=1.0, seed=None, *, deadline=None, priority=0
    ):
        return Samples([[] for _ in prompts])

    async def label_probs(self, prompts, labels, mode=None, deadline=None, priority=0):
        return LabelProbs(np.tile(np.array([0.6, 0.2, 0.1])[: len(labels)], (len(prompts), 1)))

    async def info(self):
        return await connect("nano").info()

    async def aclose(self):
        pass


def log_odds(p):
    return np.log(p[:, 0] / p[:, -1])


async def test_log_odds_get_noise_of_the_stated_scale() -> None:
    judge = LabelNoise(Fixed(), {LABELS: 1.5})
    found = (await judge.label_probs(PROMPTS, LABELS)).p
    noise = log_odds(found) - np.log(3)
    assert noise.std() == pytest.approx(1.5, abs=0.1)
    assert noise.mean() == pytest.approx(0, abs=0.15)
    assert found.sum(axis=1) == pytest.approx(np.full(len(PROMPTS), 0.8))


async def test_noise_depends_on_seed_and_prompt_alone() -> None:
    judge, same, other = (LabelNoise(Fixed(), {LABELS: 1.0}, seed) for seed in (1, 1, 2))
    whole = (await judge.label_probs(PROMPTS[:50], LABELS)).p
    alone = np.concatenate(
        [(await same.label_probs([prompt], LABELS)).p for prompt in reversed(PROMPTS[:50])]
    )
    assert np.array_equal(whole, alone[::-1])
    assert not np.isclose(whole, (await other.label_probs(PROMPTS[:50], LABELS)).p).any()


async def test_other_labels_and_samples_are_left_alone() -> None:
    judge = LabelNoise(Fixed(), {LABELS: 5.0})
    assert (await judge.label_probs(PROMPTS[:3], ["A", "C"])).p.tolist() == [[0.6, 0.2]] * 3
    assert len(await judge.sample(PROMPTS[:3])) == 3
    assert (await LabelNoise(Fixed(), {LABELS: 0.0}).label_probs(PROMPTS[:1], LABELS)).p.tolist() == [
        [0.6, 0.2]
    ]


def test_ratings_shift_as_a_whole() -> None:
    """A draw moves the middle label's log-odds against each end by half as much as those of the ends."""
    p = np.array([[0.5, 0.3, 0.2]])
    found = tilted(p, 2.0, [1.0])
    assert np.log(found[0, 0] / found[0, 2]) == pytest.approx(np.log(2.5) + 2)
    assert np.log(found[0, 0] / found[0, 1]) == pytest.approx(np.log(5 / 3) + 1)
    assert np.isfinite(tilted([[1.0, 0.0]], 3.0, [-2.0])).all()


async def test_noise_has_a_fingerprint_of_its_own() -> None:
    engine = connect("nano")
    prints = {
        (await one.info()).fingerprint
        for one in (
            engine,
            LabelNoise(engine, {LABELS: 1.0}),
            LabelNoise(engine, {LABELS: 2.0}),
            LabelNoise(engine, {LABELS: 1.0}, 1),
        )
    }
    assert len(prints) == 4


@pytest.mark.parametrize("scales", [{("A",): 1.0}, {LABELS: -1.0}, {LABELS: float("nan")}])
def test_scales_that_mean_nothing_are_refused(scales) -> None:
    with pytest.raises(InvalidInput, match="scales"):
        LabelNoise(connect("nano"), scales)
