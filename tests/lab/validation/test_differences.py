"""By how much the best metric goes better with outcomes: corrected for the choice of the best."""

import numpy as np
import pytest

from ragguard.lab.validation.differences import differences


def data(questions, metrics, *, seed, good=0.0, contexts=6):
    """Returns metrics that are equally good (or the first better by `good`), outcomes and the contexts' questions."""
    rng = np.random.default_rng(seed)
    outcome = rng.integers(0, 3, questions * contexts).astype(float)
    noise = rng.normal(size=(metrics, len(outcome)))
    values = {f"m{number}": outcome * 0.5 + noise[number] for number in range(metrics)}
    values["m0"] = values["m0"] + good * outcome
    return values, outcome, [str(number // contexts) for number in range(len(outcome))]


def best_first(values, outcome):
    return dict(sorted(values.items(), key=lambda item: -np.corrcoef(item[1], outcome)[0, 1]))


@pytest.mark.parametrize("within", [True, False])
def test_best_of_equally_good_metrics_is_called_better_at_the_level(within):
    wrong, tries = 0, 40
    for seed in range(tries):
        values, outcome, questions = data(20, 8, seed=seed)
        groups = questions if within else None
        _, gaps = differences(best_first(values, outcome), outcome, groups, None, 0.0, draws=199)
        wrong += min(gap.p for gap in gaps.values()) <= 0.05
    assert wrong / tries <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tries)


@pytest.mark.parametrize("within", [True, False])
def test_metric_that_is_better_is_found(within):
    values, outcome, questions = data(40, 6, seed=1, good=2.0)
    first, gaps = differences(best_first(values, outcome), outcome, questions if within else None, None, 0.0)
    assert first == "m0"
    assert max(gap.p for gap in gaps.values()) <= 0.05
    assert all(gap.low > 0 for gap in gaps.values())


def test_metric_that_the_caller_names_is_corrected_for_fewer_pairs():
    values, outcome, questions = data(30, 8, seed=3, good=0.4)
    by_data = differences(values, outcome, questions, None, 0.0)[1]
    named = differences(values, outcome, questions, "m0", 0.0)[1]
    assert named.keys() == by_data.keys()
    assert all(named[name].p <= by_data[name].p for name in named)
