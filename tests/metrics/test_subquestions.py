"""Coverage, novelty, density: by hand, by their properties, and α-nDCG against the TREC diversity evaluator."""

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragguard import metrics as m

RATINGS = st.tuples(st.integers(1, 7), st.integers(1, 11)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 5))
)
# The three passages of the paper's table 5, and what they answer of eight sub-questions.
ORACLE = np.zeros((3, 8))
ORACLE[0, [1, 2, 6]] = ORACLE[1, [0, 3, 5]] = ORACLE[2, [3, 4, 7]] = 5


def greedy_gain(answers, alpha, k):
    """The evaluator's ideal, spelt out: at each rank the passage that adds most, the first of equals."""
    worth = [1.0] * answers.shape[1]
    left = list(range(len(answers)))
    total = 0.0
    for rank in range(1, min(k, len(answers)) + 1):
        gains = []
        for p in left:
            gain = 0.0
            for q, answered in enumerate(answers[p]):
                if answered:
                    gain += worth[q]
            gains.append(gain)
        pick = gains.index(max(gains))
        total += gains[pick] / np.log2(rank + 1)
        for q, answered in enumerate(answers[left.pop(pick)]):
            if answered:
                worth[q] *= 1 - alpha
    return total


def listed_gain(answers, alpha, k):
    times = np.cumsum(answers, axis=0) - answers
    gains = (answers * (1 - alpha) ** times).sum(axis=1)[:k]
    return sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def test_table_5():
    assert m.coverage(ORACLE) == 1
    assert m.coverage(ORACLE[:2]) == 6 / 8
    assert m.marginal_coverage(ORACLE).tolist() == [3 / 8, 3 / 8, 2 / 8]
    assert m.redundancy(ORACLE).tolist() == pytest.approx([0, 0, 1 / 3])
    assert m.required_subset(ORACLE).required.tolist() == [0, 1, 2]


def test_the_other_two_of_ten_sub_questions_are_not_answerable():
    ten = np.hstack([ORACLE, np.zeros((3, 2))])
    answerable = m.answerable_questions(ten)
    assert answerable.tolist() == [True] * 8 + [False] * 2
    assert m.coverage(ten) == 0.8
    assert m.coverage(ten, answerable=answerable) == 1
    assert m.coverage(ten[:2], answerable=answerable) == 6 / 8
    assert m.marginal_coverage(ten, answerable=answerable).sum() == 1


def test_alpha_ndcg_by_hand():
    # Passages answer {1}, {1}, {1, 2}: gains 1, 1/2, 1/4 + 1; the ideal takes the last first: 2, 1/2, 1/4.
    ratings = [[5, 0], [5, 0], [5, 5]]
    log3 = np.log2(3)
    assert m.alpha_ndcg(ratings) == pytest.approx((1 + 0.5 / log3 + 1.25 / 2) / (2 + 0.5 / log3 + 0.25 / 2))
    assert m.alpha_ndcg(ratings, k=1) == pytest.approx(1 / 2)
    assert m.alpha_ndcg(ratings, alpha=0) == pytest.approx((1 + 1 / log3 + 1) / (2 + 1 / log3 + 0.5))
    assert m.alpha_ndcg(ratings, alpha=1) == pytest.approx((1 + 0 + 0.5) / 2)
    assert m.alpha_ndcg(ratings[:1], ideal=ratings) == pytest.approx(1 / (2 + 0.5 / log3 + 0.25 / 2))


def test_density_by_hand():
    assert m.density(0.5, 200, 1.0, 100) == pytest.approx(0.5)
    assert m.density(0.5, 200, 1.0, 100, w=1) == pytest.approx(0.25)
    assert m.density(1, 100, 1, 100) == 1
    assert m.density(0, 100, 1, 100) == 0
    assert m.density([0.5, 1], [200, 50], 1, 100).tolist() == pytest.approx([0.5, np.sqrt(2)])


def test_required_subset_by_hand():
    ratings = [[5, 0, 0], [5, 5, 0], [0, 0, 1], [0, 5, 5], [0, 5, 0]]
    subset = m.required_subset(ratings)
    assert subset.required.tolist() == [1, 3]
    assert subset.partial.tolist() == [0, 4]
    assert subset.redundant.tolist() == [2]
    assert m.required_subset(np.zeros((0, 3))).required.tolist() == []


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("questions", [2, 8, 13])
def test_alpha_ndcg_equals_ir_measures(alpha, questions):
    random = np.random.default_rng(questions)
    n, listed, unlisted = 40, 25, 6
    answers = random.random((n, listed + unlisted, questions)) < random.uniform(0.05, 0.5, (n, 1, 1))
    # The evaluator takes the last name of equals, and numbers sub-questions as it meets them.
    names = [f"d{99 - p}" for p in range(listed + unlisted)]
    qrels = [
        ir_measures.Qrel(f"q{i}", names[p], 1, str(q))
        for q in range(questions)
        for i, p in np.argwhere(answers[..., q])
    ]
    run = [ir_measures.ScoredDoc(f"q{i}", names[p], float(-p)) for i in range(n) for p in range(listed)]
    for k in (1, 5, 20):
        measure = ir_measures.alpha_nDCG(alpha=alpha, cutoff=k)
        theirs = {value.query_id: value.value for value in ir_measures.iter_calc([measure], qrels, run)}
        ours = m.alpha_ndcg(5 * answers[:, :listed], alpha=alpha, ideal=5 * answers, k=k)
        asked = answers.any(axis=(1, 2))
        expected = [theirs[f"q{i}"] for i in np.flatnonzero(asked)]
        np.testing.assert_allclose(ours[asked], expected, rtol=0, atol=1e-9)


def test_coverage_equals_subtopic_recall_of_ir_measures():
    random = np.random.default_rng(1)
    answers = random.random((50, 20, 6)) < 0.08
    answers[:, 10, :2] = True
    qrels = [ir_measures.Qrel(f"q{i}", f"d{p}", 1, str(q)) for i, p, q in np.argwhere(answers)]
    run = [ir_measures.ScoredDoc(f"q{i}", f"d{p}", float(-p)) for i in range(50) for p in range(5)]
    found = {v.query_id: v.value for v in ir_measures.iter_calc([ir_measures.StRecall @ 5], qrels, run)}
    ours = m.coverage(5 * answers[:, :5], answerable=m.answerable_questions(5 * answers))
    np.testing.assert_allclose(ours, [found[f"q{i}"] for i in range(50)], rtol=0, atol=1e-9)


@given(RATINGS, st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]), st.integers(1, 9))
def test_alpha_ndcg_is_the_gain_over_the_greedy_gain(ratings, alpha, k):
    answers = ratings >= 3
    best = greedy_gain(answers, alpha, k)
    value = m.alpha_ndcg(ratings, alpha=alpha, k=k)
    if best == 0:
        assert np.isnan(value)
    else:
        assert value == pytest.approx(listed_gain(answers, alpha, k) / best, abs=1e-12)


@given(RATINGS)
def test_marginal_coverage_sums_to_coverage(ratings):
    added = m.marginal_coverage(ratings)
    assert (added >= 0).all()
    assert added.sum() == pytest.approx(m.coverage(ratings))
    assert np.cumsum(added) == pytest.approx([m.coverage(ratings[: p + 1]) for p in range(len(ratings))])


@given(RATINGS)
def test_the_required_subset_answers_all_that_any_passage_answers(ratings):
    required, partial, redundant = m.required_subset(ratings)
    assert sorted([*required, *partial, *redundant]) == list(range(len(ratings)))
    assert m.coverage(ratings[required]) == m.coverage(ratings) or not len(required)
    assert not (ratings[redundant] >= 3).any()
    assert (ratings[partial] >= 3).any(axis=1).all()
    assert (m.marginal_coverage(ratings[required]) > 0).all()


@given(RATINGS, st.data())
def test_alpha_ndcg_behind_earlier_passages(ratings, data):
    """Word for word: a sub-question loses a factor each time that anything before has answered it."""
    earlier = data.draw(
        arrays(np.int64, (data.draw(st.integers(0, 4)), ratings.shape[1]), elements=st.integers(0, 5))
    )
    alpha = data.draw(st.sampled_from([0, 0.3, 0.5, 1]))
    gain, before = 0.0, [sum(row[q] >= 3 for row in earlier) for q in range(ratings.shape[1])]
    for rank, row in enumerate(ratings, 1):
        for q, rating in enumerate(row):
            if rating >= 3:
                gain += (1 - alpha) ** before[q] / np.log2(rank + 1)
                before[q] += 1
    ideal = greedy_gain(ratings >= 3, alpha, len(ratings))
    found = m.alpha_ndcg(ratings, alpha=alpha, earlier=earlier)
    assert np.isnan(found) if not ideal else found == pytest.approx(gain / ideal)
    assert np.array_equal(m.alpha_ndcg([ratings], alpha=alpha, earlier=[earlier]), [found], equal_nan=True)


@given(RATINGS)
def test_redundancy_is_the_share_of_answers_that_earlier_passages_gave(ratings):
    answered = (ratings >= 3).sum(axis=1)
    added = m.marginal_coverage(ratings) * ratings.shape[1]
    redundancy, some = m.redundancy(ratings), answered > 0
    assert np.isnan(redundancy[~some]).all()
    assert redundancy[some] * answered[some] == pytest.approx((answered - added)[some])
