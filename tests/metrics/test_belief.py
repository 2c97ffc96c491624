"""SePer and its companions: by hand, and by the properties the paper asks of a retrieval utility."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m

UNIT = st.floats(0, 1)
LOGPROBS = st.lists(st.lists(st.floats(-50, 0), min_size=1, max_size=5), min_size=1, max_size=10)


@st.composite
def beliefs(draw, references=3):
    """Weights of some answers, and how far each means each reference."""
    raw = draw(arrays(float, st.integers(1, 8), elements=st.floats(0.01, 1)))
    shape = (len(raw), draw(st.integers(1, references)))
    return raw / raw.sum(), draw(arrays(float, shape, elements=UNIT))


@st.composite
def clustered(draw):
    """Weights, clusters, and which cluster means the one reference."""
    raw = draw(arrays(float, st.integers(1, 8), elements=st.floats(0.01, 1)))
    meanings = draw(arrays(int, len(raw), elements=st.integers(0, 3)))
    clusters = m.cluster(np.equal.outer(meanings, meanings))
    matches = draw(arrays(bool, (int(clusters.max()) + 1, 1)))
    return raw / raw.sum(), clusters, matches


def test_seven_of_ten_mean_the_reference():
    answers = ["No"] * 7 + ["Yes", "Yes", "Maybe"]
    weights = m.sample_weights([[-0.3]] * 10)
    clusters = m.cluster(np.equal.outer(answers, answers))
    assert clusters.tolist() == [0] * 7 + [1, 1, 2]
    assert m.seper_hard(weights, clusters, [[True], [False], [False]]) == pytest.approx(0.7)
    assert m.seper_soft(weights, [[answer == "No"] for answer in answers]) == pytest.approx(0.7)
    entropy = scipy.stats.entropy([0.7, 0.2, 0.1])
    assert m.semantic_entropy(weights, clusters) == pytest.approx(entropy, abs=1e-12)


def test_weights_by_hand():
    logprobs = [[-1.0, -3.0], [-1.0]]
    mean = np.exp([-2, -1])
    assert m.sample_weights(logprobs) == pytest.approx(mean / mean.sum())
    total = np.exp([-4, -1])
    assert m.sample_weights(logprobs, "sum") == pytest.approx(total / total.sum())
    assert m.sample_weights(logprobs, "count").tolist() == [0.5, 0.5]
    assert m.sample_weights(np.array([[-1.0, -3.0], [-2.0, -2.0]])).tolist() == [0.5, 0.5]
    assert m.sample_weights([]).shape == (0,)


@pytest.mark.parametrize("scheme", ["mean", "sum"])
def test_two_thousand_nats_are_no_nan(scheme):
    assert m.sample_weights([[-2000.0], [-1.0]], scheme).tolist() == [0, 1]
    assert m.sample_weights([[-2000.0]] * 4, scheme).tolist() == [0.25] * 4
    assert m.sample_weights([[-2000.0] * 50, [-2001.0] * 50], scheme)[0] > 0.7


def test_an_answer_joins_the_first_cluster_whose_first_member_it_equals():
    # 1 equals 0; 2 equals 1, but not 0, who stands for the cluster; 3 equals 0 and 2.
    equivalent = np.eye(4, dtype=bool)
    for i, j in [(0, 1), (1, 2), (0, 3), (2, 3)]:
        equivalent[i, j] = equivalent[j, i] = True
    assert m.cluster(equivalent).tolist() == [0, 0, 1, 0]
    assert m.cluster(np.zeros((0, 0), dtype=bool)).tolist() == []


def test_several_references():
    weights, clusters = [0.5, 0.3, 0.2], [0, 1, 2]
    matches = [[True, True], [False, True], [False, False]]
    assert m.seper_hard(weights, clusters, matches) == pytest.approx(0.8)
    assert m.seper_hard(weights, clusters, matches, answers="mean") == pytest.approx((0.5 + 0.8) / 2)
    entailment = np.array(matches, dtype=float)
    assert m.seper_soft(weights, entailment) == pytest.approx(0.8)
    assert m.seper_soft(weights, entailment, answers="mean") == pytest.approx((0.5 + 0.8) / 2)


def test_a_response_is_judged_by_its_own_references():
    # The published code reads such tables across: 0.1 would come out 0.9.
    weights = [0.1, 0.9]
    entailment = [[1.0, 0.0], [0.0, 0.0]]
    assert m.seper_soft(weights, entailment) == pytest.approx(0.1)
    assert m.seper_hard(weights, [0, 1], [[True, False], [False, False]]) == pytest.approx(0.1)


@given(beliefs(), UNIT)
def test_belief_is_monotone_in_the_mass_on_the_reference(belief, more):
    weights, entailment = belief
    raised = entailment + (1 - entailment) * more
    assert m.seper_soft(weights, raised) >= m.seper_soft(weights, entailment) - 1e-12


@given(beliefs(), st.randoms())
def test_soft_belief_knows_no_order_of_samples(belief, random):
    weights, entailment = belief
    order = random.sample(range(len(weights)), len(weights))
    assert m.seper_soft(weights[order], entailment[order]) == pytest.approx(m.seper_soft(weights, entailment))


@given(clustered())
def test_hard_and_soft_agree_where_entailment_is_what_the_clusters_say(belief):
    weights, clusters, matches = belief
    entailment = matches[clusters].astype(float)
    assert m.seper_soft(weights, entailment) == pytest.approx(m.seper_hard(weights, clusters, matches))


@given(st.lists(UNIT, min_size=1, max_size=12))
def test_marginals_sum_to_the_total(beliefs):
    marginals = m.attribution(beliefs)
    assert len(marginals) == len(beliefs) - 1
    assert marginals.sum() == pytest.approx(beliefs[-1] - beliefs[0], abs=1e-12)
    assert (np.abs(marginals) <= 1).all()


@given(clustered())
def test_entropy_equals_scipy_and_is_bounded(belief):
    weights, clusters, _ = belief
    mass = np.bincount(clusters, weights)
    entropy = m.semantic_entropy(weights, clusters)
    assert entropy == pytest.approx(scipy.stats.entropy(mass), abs=1e-9)
    assert 0 <= entropy <= np.log(len(mass)) + 1e-12


@pytest.mark.parametrize(("meanings", "mean"), [(50, 2.18), (5, 1.38)])
def test_entropy_of_ten_answers_is_too_low_by_what_the_concepts_say(meanings, mean):
    drawn = np.random.default_rng(0).integers(0, meanings, (20_000, 10))
    assert m.semantic_entropy(np.full(drawn.shape, 0.1), drawn).mean() == pytest.approx(mean, abs=0.01)
    page = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text()
    assert re.search(rf"is\s+{np.log(meanings):.2f}, and ten answers give {mean:.2f}", page)


def test_stderr_is_that_of_a_proportion():
    weights = m.sample_weights([[-0.3]] * 10, "count")
    agrees = np.array([[1.0]] * 7 + [[0.0]] * 3)
    expected = np.sqrt(0.7 * 0.3 / 10)
    assert m.seper_stderr(weights, agrees, draws=20_000) == pytest.approx(expected, rel=0.03)


def test_stderr_equals_the_bootstrap_of_scipy():
    random = np.random.default_rng(5)
    weights = random.dirichlet(np.ones(10))
    entailment = random.random((10, 1))
    drawn = scipy.stats.bootstrap(
        (weights, entailment[:, 0]), lambda w, e: (w * e).sum() / w.sum(), paired=True, vectorized=False,
        n_resamples=5000, method="percentile", random_state=0,
    )  # fmt: skip
    assert m.seper_stderr(weights, entailment, draws=20_000) == pytest.approx(drawn.standard_error, rel=0.05)


def test_ten_equal_answers_are_not_certainty():
    weights = np.full(10, 0.1)
    surely = m.seper_stderr(weights, np.ones((10, 1)))
    # As if one of twelve had meant something else.
    assert surely == pytest.approx(np.sqrt(11 / 12 * 1 / 12 / 12))
    assert m.seper_stderr(weights, np.zeros((10, 1))) == pytest.approx(surely)
    assert m.seper_stderr([1.0], [[1.0]]) > surely


@given(beliefs())
def test_zero_utility_of_equal_samples(belief):
    weights, entailment = belief
    before = m.seper_soft(weights, entailment)
    # A passage that changes no answer is worth nothing, whether it is irrelevant or the answer was known.
    assert m.attribution([before, m.seper_soft(weights, entailment)]).tolist() == [0]


def test_stderr_where_one_answer_has_all_the_weight():
    # Draws without that answer say nothing; they are left out.
    assert 0 < m.seper_stderr([1.0, 0.0, 0.0], [[1.0], [0.0], [0.0]]) < 0.5


def test_kernel_is_the_larger_or_the_forward_entailment():
    assert m.kernel([0.2, 0.9], [0.6, 0.1]).tolist() == [0.6, 0.9]
    assert m.kernel([0.2, 0.9], [0.6, 0.1], "forward").tolist() == [0.2, 0.9]


def test_stderr_of_a_question_is_the_same_beyond_the_first_block_of_questions():
    random = np.random.default_rng(2)
    weights, entailment = random.dirichlet(np.ones(10), 40), random.random((40, 10, 2))
    together = m.seper_stderr(weights, entailment, draws=5000)
    assert together[39] == pytest.approx(m.seper_stderr(weights[39], entailment[39], draws=5000))
