"""Ranking measures: by hand, by their properties, and against the libraries that define them."""

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m

RELEVANCE = arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 3))


def test_ranking_of_a_small_case_is_the_number_by_hand():
    assert m.precision([1, 0, 1, 0]) == 0.5
    assert m.precision([1, 0, 1], k=2) == 0.5
    assert m.precision([1], k=4) == 0.25
    assert m.recall([1, 0, 1], total=4) == 0.5
    assert m.recall([1, 0, 1], total=4, k=1) == 0.25
    assert m.hits([0, 0, 1]) == 1
    assert m.hits([0, 0, 1], k=2) == 0
    assert m.reciprocal_rank([0, 0, 1]) == pytest.approx(1 / 3)
    assert m.reciprocal_rank([0, 0, 1], k=2) == 0
    assert m.average_precision([1, 0, 1]) == pytest.approx((1 + 2 / 3) / 2)
    assert m.average_precision([1, 0, 1], total=4) == pytest.approx((1 + 2 / 3) / 4)
    assert m.average_precision([1, 0, 1], k=1) == pytest.approx(1 / 2)
    # 3 + 2/log2(3) + 0 + 1/log2(5), beside 3 + 2/log2(3) + 1/2.
    reached = 3 + 2 / np.log2(3) + 1 / np.log2(5)
    assert m.ndcg([3, 2, 0, 1]) == pytest.approx(reached / (3 + 2 / np.log2(3) + 0.5))
    assert m.ndcg([3, 2, 0, 1], k=2) == pytest.approx(1)
    assert m.ndcg([1, 0], ideal=[1, 3]) == pytest.approx(1 / (3 + 1 / np.log2(3)))


def judged(seed, n=60, listed=30, unlisted=6):
    """Relevance of listed and unlisted documents; some queries have none at all, which the tests leave out."""
    random = np.random.default_rng(seed)
    rel = random.choice([0, 0, 0, 0, 1, 2, 3], (n, listed + unlisted))
    return rel[rel.any(axis=1)], listed


def as_trec(rel, listed):
    qrels = {f"q{i}": {f"d{j}": int(grade) for j, grade in enumerate(row)} for i, row in enumerate(rel)}
    run = {f"q{i}": {f"d{j}": float(listed - j) for j in range(listed)} for i in range(len(rel))}
    return qrels, run


@pytest.mark.parametrize("seed", range(3))
def test_equals_ir_measures(seed):
    rel, listed = judged(seed)
    qrels, run = as_trec(rel, listed)
    total = (rel > 0).sum(axis=1)
    ranked = rel[:, :listed]
    ours = {
        ir_measures.nDCG: m.ndcg(ranked, ideal=rel),
        ir_measures.nDCG @ 10: m.ndcg(ranked, 10, ideal=rel),
        ir_measures.AP: m.average_precision(ranked, total),
        ir_measures.AP @ 10: m.average_precision(ranked, total, 10),
        ir_measures.RR: m.reciprocal_rank(ranked),
        ir_measures.RR @ 3: m.reciprocal_rank(ranked, 3),
        ir_measures.P @ 5: m.precision(ranked, 5),
        ir_measures.P @ 50: m.precision(ranked, 50),
        ir_measures.R @ 10: m.recall(ranked, total, 10),
        ir_measures.Success @ 3: m.hits(ranked, 3),
    }
    theirs = {measure: {} for measure in ours}
    for value in ir_measures.iter_calc(list(ours), qrels, run):
        theirs[value.measure][value.query_id] = value.value
    for measure, values in ours.items():
        expected = [theirs[measure][f"q{i}"] for i in range(len(rel))]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9, err_msg=str(measure))


@pytest.mark.parametrize("seed", range(3, 6))
def test_equals_pytrec_eval(seed):
    rel, listed = judged(seed)
    qrels, run = as_trec(rel, listed)
    total = (rel > 0).sum(axis=1)
    ranked = rel[:, :listed]
    ours = {
        "ndcg": m.ndcg(ranked, ideal=rel),
        "ndcg_cut_10": m.ndcg(ranked, 10, ideal=rel),
        "ndcg_cut_1000": m.ndcg(ranked, 1000, ideal=rel),
        "map": m.average_precision(ranked, total),
        "map_cut_5": m.average_precision(ranked, total, 5),
        "recip_rank": m.reciprocal_rank(ranked),
        "P_10": m.precision(ranked, 10),
        "recall_15": m.recall(ranked, total, 15),
        "success_5": m.hits(ranked, 5),
    }
    found = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg", "ndcg_cut", "map", "map_cut", "recip_rank", "P", "recall", "success"}
    ).evaluate(run)
    for name, values in ours.items():
        expected = [found[f"q{i}"][name] for i in range(len(rel))]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9, err_msg=name)


@given(RELEVANCE.filter(np.any))
def test_the_best_order_is_worth_1_and_no_order_more(rel):
    best = np.sort(rel)[::-1]
    assert m.ndcg(best) == pytest.approx(1)
    assert m.average_precision(best) == pytest.approx(1)
    assert m.ndcg(rel) <= m.ndcg(best) + 1e-12
    assert m.average_precision(rel) <= m.average_precision(best) + 1e-12
