"""Utility and UDCG: by hand, by their properties, and the learned weights against what they were made from."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m

UNIT = st.floats(0, 1)
UTILITIES = arrays(float, st.integers(1, 10), elements=st.floats(-1, 1))


def test_utility_and_udcg_of_a_small_case_are_the_numbers_by_hand():
    u = m.utility([True, True, False, False], [0.1, 0.9, 0.2, 0.7])
    assert u == pytest.approx([0.9, 0.1, -0.8, -0.3])
    assert m.udcg(u) == pytest.approx(1 / (1 + np.exp(-0.158333)), abs=1e-6)
    assert m.udcg(u) == pytest.approx(0.539501, abs=5e-7)
    assert m.distracting_effect([0.2, 0.7]) == pytest.approx([0.8, 0.3])


def test_gain_and_harm_of_an_uncertain_judge_do_not_cancel():
    assert m.utility(0.5, 0.0) == 0
    assert m.udcg([m.utility(0.5, 0.0)]) == 0.5
    parts = m.utility_parts(0.5, 0.0)
    assert parts == (0.5, -0.5)
    assert m.udcg_of_parts([parts.gain], [parts.harm]) == pytest.approx(0.5826, abs=5e-5)


@given(UNIT, UNIT)
def test_parts_sum_to_the_utility(relevant, p):
    gain, harm = m.utility_parts(relevant, p)
    assert harm <= 0 <= gain
    assert gain + harm == pytest.approx(m.utility(relevant, p), abs=1e-12)


@given(UTILITIES, UNIT)
def test_udcg_of_hard_parts_is_udcg(u, gamma):
    parts = m.udcg_of_parts(np.maximum(u, 0), np.minimum(u, 0), gamma)
    assert parts == pytest.approx(m.udcg(u, gamma), abs=1e-15)


@given(UTILITIES, UNIT, st.randoms())
def test_udcg_is_a_bounded_number_of_a_set(u, gamma, random):
    value = m.udcg(u, gamma)
    low, high = m.find("udcg").range
    assert low - 1e-12 <= value <= high + 1e-12
    shuffled = u[random.sample(range(len(u)), len(u))]
    assert m.udcg(shuffled, gamma) == pytest.approx(value)


def contexts_and_outcomes(k=4, questions=60, seed=0):
    """Contexts whose outcome hangs on hidden weights by position: harm first, gain last."""
    random = np.random.default_rng(seed)
    u = random.uniform(-1, 1, (questions * 8, k))
    alpha, beta = np.linspace(0.5, 2, k), np.linspace(1.5, 0.2, k)
    worth = np.maximum(u, 0) @ alpha + np.minimum(u, 0) @ beta
    outcome = np.digitize(worth, np.quantile(worth, [1 / 3, 2 / 3]))
    return u, outcome, np.repeat(np.arange(questions), 8), np.concatenate([alpha, beta])


def order_agreement(values, outcome, groups):
    return m.correlate(values, outcome, groups=groups, draws=10).value


def test_learned_weights_find_the_hidden_ones():
    u, outcome, groups, hidden = contexts_and_outcomes()
    model = m.LearnedUdcg(4).fit(u, outcome, groups)
    learned = np.concatenate([model.to_dict()["alpha"], model.to_dict()["beta"]])
    assert np.corrcoef(learned, hidden)[0, 1] > 0.98
    fresh, outcomes, questions, _ = contexts_and_outcomes(seed=1)
    assert order_agreement(model(fresh), outcomes, questions) > order_agreement(
        m.udcg(fresh), outcomes, questions
    )
    assert ((model(fresh) > 0) & (model(fresh) < 1)).all()


def test_ablations_are_weaker():
    u, outcome, groups, _ = contexts_and_outcomes()
    fresh, outcomes, questions, _ = contexts_and_outcomes(seed=1)
    agreement = {
        ablation: order_agreement(
            m.LearnedUdcg(4, ablation).fit(u, outcome, groups)(fresh), outcomes, questions
        )
        for ablation in (None, "rel_only", "binary")
    }
    assert agreement[None] > agreement["rel_only"] > agreement["binary"]
    only_gain = m.LearnedUdcg(4, "rel_only").fit(u, outcome, groups)
    assert only_gain.to_dict()["beta"] == [0, 0, 0, 0]
    assert only_gain(np.minimum(u[0], 0)) == 0.5
    binary = m.LearnedUdcg(4, "binary").fit(u, outcome, groups)
    assert binary([0.1, -1, 0.1, -1]) == binary([0.9, -1, 0.9, -0.1])


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("sklearn.svm", lambda: m.LearnedUdcg(1).fit([[0.1], [0.9]], [0, 2], [0, 0])),
        ("scipy.stats", lambda: m.correlate([1, 2, 3], [1, 2, 3])),
    ],
)
def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch, module, call):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install './ragguard\[analysis\]'"):
        call()
