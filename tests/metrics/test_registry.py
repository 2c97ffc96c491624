"""Every score and metric has one declaration, and every table is made from it; arrays are padded and aggregated."""

import inspect

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m
from ragguard.errors import UnknownName
from ragguard.metrics.arrays import ranks
from ragguard.metrics.registry import declare

# The design's table of scores.
SCORES = {
    "passage": "p_abstain p_relevant utility distracting_effect answerability redundancy grade query_gain "
    "delta_likelihood question_gain brings_answer contribution joint_gain",
    "step": "seper seper_hard delta_seper delta_seper_alone semantic_entropy delta_semantic_entropy udcg harm coverage "
    "learned_udcg "
    "delta_coverage delta_seper_selection delta_coverage_selection delta_udcg_selection contested alpha_ndcg "
    "ra_nwg proc pct_proc selection_efficiency n_recall n_recall_5 recall precision_at_grade harm_1 "
    "t t_u f f_e "
    "likelihood likelihood_total delta_likelihood delta_likelihood_alone log_gain "
    "answer_in_context "
    "credit loss_without question_gain reference_gain joint_gain delta_likelihood_random",
    "run": "contested seper_closed_book delta_seper_total udcg_context coverage_total alpha_ndcg_total density "
    "answer_correct answer_in_context ungrounded likelihood_closed_book delta_likelihood_total "
    "answer_coverage answer_density response_grade unused_share cited_used enough_after redundant_hops "
    "delta_likelihood_random",
}
# What the numbers are made with, and what is said of numbers: no metrics themselves.
HELPERS = {
    "aggregate", "answerable_questions", "best_alpha", "cluster", "correlate", "find", "grade_weights", "is_abstention",
    "kernel", "normalise", "pad", "paired_bootstrap", "required_subset", "right_by_words", "sample_weights",
    "seper_stderr", "udcg_of_parts", "utility_parts",
}  # fmt: skip


@pytest.mark.parametrize("level", SCORES)
def test_the_scores_of_a_level_are_those_of_the_design(level):
    declared = {metric.name for metric in m.METRICS.values() if level in metric.levels}
    assert declared == set(SCORES[level].split())


def test_every_metric_function_is_declared():
    functions = {name for name in m.__all__ if inspect.isfunction(getattr(m, name))}
    assert functions - HELPERS == {metric.call for metric in m.METRICS.values()} - {"", "LearnedUdcg"}
    assert not HELPERS - functions


@pytest.mark.parametrize("metric", m.METRICS.values(), ids=lambda metric: metric.name)
def test_a_declaration_says_everything(metric):
    assert metric.title
    assert metric.description.endswith(".")
    assert len(metric.description) <= 110
    assert metric.needs
    assert metric.source
    assert metric.range[0] < metric.range[1]
    assert metric.function is None or getattr(m, metric.call) is metric.function
    assert m.find(metric.name) is metric


def test_public_names_are_exactly_what_is_there():
    assert sorted(set(m.__all__)) == sorted(m.__all__)
    for name in m.__all__:
        assert getattr(m, name) is not None
    modules = {name for name, value in vars(m).items() if inspect.ismodule(value)}
    assert not modules & set(m.__all__)


def test_an_unknown_name_is_told_what_it_may_have_meant():
    with pytest.raises(UnknownName, match=r"ndgc.*alpha_ndcg|ndgc.*ndcg"):
        m.find("ndgc")


def test_a_name_is_declared_once():
    with pytest.raises(ValueError, match="udcg"):
        declare(m.find("udcg"))


LISTS = st.lists(st.lists(st.floats(-5, 5), max_size=6), max_size=6)


@given(LISTS)
def test_padding_keeps_every_list(lists):
    values, mask = m.pad(lists, fill=-7)
    assert values.shape == mask.shape == (len(lists), max(map(len, lists), default=0))
    assert [row[real].tolist() for row, real in zip(values, mask, strict=True)] == lists
    assert (values[~mask] == -7).all()
    for real in mask:
        assert not (real[1:] & ~real[:-1]).any()


def test_padding_tables():
    values, mask = m.pad([np.ones((2, 3)), np.zeros((0, 3)), np.full((1, 3), 5)])
    assert values.shape == (3, 2, 3)
    assert mask.tolist() == [[True, True], [False, False], [True, False]]
    assert m.coverage(values, mask=mask).tolist() == pytest.approx([0, np.nan, 1], nan_ok=True)


def test_a_ragged_batch_as_a_user_writes_it():
    values, mask = m.pad([[0.9, -0.3], [], [0.5]])
    assert m.udcg(values, mask=mask) == pytest.approx(
        [m.udcg([0.9, -0.3]), np.nan, m.udcg([0.5])], nan_ok=True
    )


def test_the_mean_leaves_out_what_is_undefined_and_says_how_much():
    found = m.aggregate([1.0, np.nan, 2.0, 3.0])
    assert (found.mean, found.counted, found.skipped) == (2, 3, 1)
    assert found.stderr == pytest.approx(scipy.stats.sem([1, 2, 3]))
    alone = m.aggregate([1])
    assert (alone.mean, alone.counted) == (1, 1)
    assert np.isnan(alone.stderr)
    nothing = m.aggregate([np.nan])
    assert np.isnan(nothing.mean)
    assert (nothing.counted, nothing.skipped) == (0, 1)


@given(arrays(int, st.integers(0, 8), elements=st.integers(0, 3)))
def test_ranks_equal_scipy(values):
    np.testing.assert_array_equal(ranks(values), scipy.stats.rankdata(values))
