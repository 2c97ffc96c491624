"""What holds for every metric: the last axis, the mask, nan, errors that name the argument, no aliasing."""

import warnings

import numpy as np
import pytest

from ragguard import metrics as m
from ragguard.errors import InvalidInput

LENGTHS = (3, 1, 5, 2, 4)


def lists(draw):
    random = np.random.default_rng(7)
    return [draw(random, n) for n in LENGTHS]


def uniform(low, high):
    return lists(lambda random, n: random.uniform(low, high, n))


def integers(low, high):
    return lists(lambda random, n: random.integers(low, high + 1, n))


def tables(high=5, columns=4):
    return lists(lambda random, n: random.integers(0, high + 1, (n, columns)))


def weights():
    return lists(lambda random, n: random.dirichlet(np.ones(n)))


GRADES, UTILITIES, GAINS, RATINGS = integers(1, 5), uniform(-1, 1), integers(0, 3), tables()
GAIN, HARM, BELIEFS, WEIGHTS = uniform(0, 1), uniform(-1, 0), uniform(0, 1), weights()
ENTAILMENT = lists(lambda random, n: random.uniform(0, 1, (n, 2)))
CLUSTERS = lists(lambda random, n: random.integers(0, 2, n))
MATCHES = np.random.default_rng(3).random((len(LENGTHS), 2, 3)) < 0.5

# One entry a call: the ragged arguments with the name of each one's mask, and the metric of those and the masks.
CASES = {
    "udcg": ({"mask": UTILITIES}, lambda a, i, mask: m.udcg(a, mask=mask)),
    "udcg_of_parts": (
        {"mask": GAIN, "_": HARM},
        lambda a, b, i, mask, _: m.udcg_of_parts(a, b, mask=mask),
    ),
    "precision": ({"mask": GAINS}, lambda a, i, mask: m.precision(a, mask=mask)),
    "precision@2": ({"mask": GAINS}, lambda a, i, mask: m.precision(a, 2, mask=mask)),
    "recall": ({"mask": GAINS}, lambda a, i, mask: m.recall(a, np.arange(5, 10)[i], 2, mask=mask)),
    "hits": ({"mask": GAINS}, lambda a, i, mask: m.hits(a, 1, mask=mask)),
    "reciprocal_rank": ({"mask": GAINS}, lambda a, i, mask: m.reciprocal_rank(a, mask=mask)),
    "average_precision": ({"mask": GAINS}, lambda a, i, mask: m.average_precision(a, mask=mask)),
    "ndcg": ({"mask": GAINS}, lambda a, i, mask: m.ndcg(a, mask=mask)),
    "ndcg@2": (
        {"mask": GAINS, "ideal_mask": GAINS},
        lambda a, b, i, mask, ideal_mask: m.ndcg(a, 2, b, mask=mask, ideal_mask=ideal_mask),
    ),
    "grade_weights": ({"mask": GRADES}, lambda a, i, mask: m.grade_weights(a, mask=mask)),
    "ra_nwg": (
        {"pool_mask": GRADES, "chosen_mask": GRADES},
        lambda a, b, i, pool_mask, chosen_mask: m.ra_nwg(a, b, 5, pool_mask=pool_mask, chosen_mask=chosen_mask),
    ),
    "proc": (
        {"pool_mask": GRADES, "candidates_mask": GRADES},
        lambda a, b, i, **masks: m.proc(a, b, 2, **masks),
    ),
    "pct_proc": (
        {"pool_mask": GRADES, "candidates_mask": GRADES, "chosen_mask": GRADES},
        lambda a, b, c, i, **masks: m.pct_proc(a, b, c, 5, **masks),
    ),
    "n_recall": (
        {"pool_mask": GRADES, "chosen_mask": GRADES},
        lambda a, b, i, **masks: m.n_recall(a, b, 5, **masks),
    ),
    "precision_at_grade": (
        {"chosen_mask": GRADES},
        lambda a, i, chosen_mask: m.precision_at_grade(a, 5, chosen_mask=chosen_mask),
    ),
    "harm": ({"chosen_mask": GRADES}, lambda a, i, chosen_mask: m.harm(a, 5, chosen_mask=chosen_mask)),
    "coverage": ({"mask": RATINGS}, lambda a, i, mask: m.coverage(a, mask=mask)),
    "answerable_questions": (
        {"mask": RATINGS},
        lambda a, i, mask: m.answerable_questions(a, mask=mask),
    ),
    "alpha_ndcg": ({"mask": RATINGS}, lambda a, i, mask: m.alpha_ndcg(a, mask=mask)),
    "alpha_ndcg@2": (
        {"mask": RATINGS, "ideal_mask": RATINGS},
        lambda a, b, i, mask, ideal_mask: m.alpha_ndcg(a, ideal=b, k=2, mask=mask, ideal_mask=ideal_mask),
    ),
    "seper_soft": (
        {"mask": WEIGHTS, "_": ENTAILMENT},
        lambda a, b, i, mask, _: m.seper_soft(a, b, mask=mask),
    ),
    "seper_hard": (
        {"mask": WEIGHTS, "_": CLUSTERS},
        lambda a, b, i, mask, _: m.seper_hard(a, b, MATCHES[i], mask=mask),
    ),
    "seper_stderr": (
        {"mask": WEIGHTS, "_": ENTAILMENT},
        lambda a, b, i, mask, _: m.seper_stderr(a, b, draws=50, mask=mask),
    ),
    "semantic_entropy": (
        {"mask": WEIGHTS, "_": CLUSTERS},
        lambda a, b, i, mask, _: m.semantic_entropy(a, b, mask=mask),
    ),
}  # fmt: skip
EACH = {
    "marginal_coverage": (RATINGS, lambda a, mask: m.marginal_coverage(a, mask=mask)),
    "redundancy": (RATINGS, lambda a, mask: m.redundancy(a, mask=mask)),
    "attribution": (BELIEFS, lambda a, mask: m.attribution(a, mask=mask)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_with_a_mask_is_each_list_alone(name):
    ragged, call = CASES[name]
    everything = slice(None)
    alone = [
        call(*(rows[i] for rows in ragged.values()), i=i, **dict.fromkeys(ragged))
        for i in range(len(LENGTHS))
    ]
    padded = [m.pad(rows) for rows in ragged.values()]
    masks = {mask: one.mask for mask, one in zip(ragged, padded, strict=True)}
    together = call(*(one.values for one in padded), i=everything, **masks)
    assert together.shape[0] == len(LENGTHS)
    np.testing.assert_allclose(together, np.array(alone), rtol=0, atol=1e-12)
    assert all(type(value) is float for value in alone) or np.ndim(alone[0])


@pytest.mark.parametrize("name", CASES)
def test_padding_may_hold_anything_and_stand_anywhere(name):
    ragged, call = CASES[name]
    random = np.random.default_rng(11)
    width = 8
    holes = np.zeros((len(LENGTHS), width), dtype=bool)
    for row, n in zip(holes, LENGTHS, strict=True):
        row[np.sort(random.choice(width, n, replace=False))] = True
    spread = []
    for rows in ragged.values():
        values = np.full((len(LENGTHS), width, *rows[0].shape[1:]), np.nan)
        values[holes] = np.concatenate(rows)
        spread.append(values)
    padded = [m.pad(rows) for rows in ragged.values()]
    masks = {mask: one.mask for mask, one in zip(ragged, padded, strict=True)}
    expected = call(*(one.values for one in padded), i=slice(None), **masks)
    if "_" in ragged:
        # The second list shares the first one's mask, but is checked against it: only its own padding is free.
        spread[1] = np.where(np.isnan(spread[1]), 0, spread[1])
    found = call(*spread, i=slice(None), **dict.fromkeys(ragged, holes))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", EACH)
def test_a_value_for_each_entry_is_nan_where_there_is_none(name):
    rows, call = EACH[name]
    padded = m.pad(rows)
    together = call(padded.values, padded.mask)
    for i, row in enumerate(rows):
        alone = call(row, None)
        np.testing.assert_allclose(together[i][: len(alone)], alone, atol=1e-12)
        assert np.isnan(together[i][len(alone) :]).all()


@pytest.mark.parametrize("name", CASES)
def test_no_lists_give_no_values(name):
    ragged, call = CASES[name]
    shape = {mask: (0, 3, *rows[0].shape[1:]) for mask, rows in ragged.items()}
    found = call(*(np.ones(one) for one in shape.values()), i=slice(0), **dict.fromkeys(ragged))
    assert found.shape[0] == 0


def test_leading_axes_may_be_many():
    u = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    np.testing.assert_array_equal(m.udcg(u)[1], m.udcg(u[1]))
    ratings = np.random.default_rng(0).integers(0, 6, (2, 3, 4, 5))
    np.testing.assert_allclose(m.alpha_ndcg(ratings)[1], m.alpha_ndcg(ratings[1]))
    np.testing.assert_allclose(m.coverage(ratings)[1], m.coverage(ratings[1]))


UNDEFINED = {
    "no passages": lambda: m.udcg([]),
    "nothing relevant: ndcg": lambda: m.ndcg([0, 0, 0]),
    "nothing relevant: recall": lambda: m.recall([0, 0], 0),
    "nothing relevant: average precision": lambda: m.average_precision([0, 0]),
    "an oracle of zero": lambda: m.ra_nwg([1, 2, 2], [2], 2),
    "no pool": lambda: m.ra_nwg([], [], 3),
    "no ceiling": lambda: m.pct_proc([5, 1], [1, 1], [1], 2),
    "no good passage": lambda: m.n_recall([3, 3], [3], 1),
    "no context": lambda: m.coverage(np.zeros((0, 3))),
    "no sub-questions": lambda: m.coverage(np.zeros((3, 0))),
    "no answerable sub-question": lambda: m.coverage([[5, 5]], answerable=[False, False]),
    "nothing answered": lambda: m.alpha_ndcg([[0, 1], [2, 2]]),
    "no tokens": lambda: m.density(0.5, 0, 1, 100),
    "no oracle coverage": lambda: m.density(0.5, 10, 0, 100),
    "nothing retrieved: t": lambda: m.t(0, 0),
    "nothing relevant: f": lambda: m.f(0, 5, 0),
    "no answers: hard": lambda: m.seper_hard([], [], np.zeros((0, 1), dtype=bool)),
    "no answers: soft": lambda: m.seper_soft([], np.zeros((0, 1))),
    "no references: hard": lambda: m.seper_hard([1.0], [0], np.zeros((1, 0), dtype=bool)),
    "no references: soft": lambda: m.seper_soft([1.0], np.zeros((1, 0))),
    "no answers: entropy": lambda: m.semantic_entropy([], []),
    "no answers: error": lambda: m.seper_stderr([], np.zeros((0, 1))),
    "no references: exact match": lambda: m.exact_match("a", []),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_is_nan(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = UNDEFINED[name]()
    assert type(value) is float
    assert np.isnan(value)


DEFINED = {
    "nothing retrieved: hits": (lambda: m.hits([]), 0.0),
    "nothing retrieved: reciprocal rank": (lambda: m.reciprocal_rank([]), 0.0),
    "nothing retrieved: precision at k": (lambda: m.precision([], 5), 0.0),
    "nothing retrieved: ndcg": (lambda: m.ndcg([], ideal=[1]), 0.0),
    "nothing retrieved: ranked coverage": (lambda: m.alpha_ndcg(np.zeros((0, 2)), ideal=[[5, 0]]), 0.0),
    "nothing chosen": (lambda: m.ra_nwg([5, 1], [], 3), 0.0),
    "no candidates": (lambda: m.proc([5, 1], [], 3), 0.0),
    "nothing in the top 2k": (lambda: m.f_e(0, 5, 0), 0.0),
}


@pytest.mark.parametrize("name", DEFINED)
def test_an_empty_list_is_worth_nothing_where_there_was_something_to_find(name):
    call, expected = DEFINED[name]
    assert call() == expected


RAGGED = [[0.5, 0.5], [0.5]]
BAD = {
    # name of the case: (call, the argument the message names, the value it shows)
    "probability over 1": (lambda: m.utility(True, 1.2), "p_abstain", "1.2"),
    "probability under 0": (lambda: m.distracting_effect([0.5, -0.1]), r"p_abstain\[1\]", "-0.1"),
    "utility over 1": (lambda: m.udcg([1.5]), r"u\[0\]", "1.5"),
    "gamma over 1": (lambda: m.udcg([0.5], gamma=1.5), "gamma", "1.5"),
    "not finite": (lambda: m.udcg([0.5, float("nan")]), r"u\[1\]", "nan"),
    "masked out does not excuse the rest": (
        lambda: m.udcg([[0.5, 7.0]], mask=[[False, True]]), r"u\[0, 1\]", "7.0"),
    "ragged": (lambda: m.udcg(RAGGED), "u: ", "pad"),
    "complex": (lambda: m.udcg([1j]), "u: ", "1j"),
    "a number, not a list": (lambda: m.udcg(0.5), "u: ", "0.5"),
    "a list, not a table": (lambda: m.coverage([5, 5]), "ratings: ", r"\[5, 5\]"),
    "lengths: utility": (lambda: m.utility([1, 0], [0.1, 0.2, 0.3]), "p_abstain", r"\(3,\)"),
    "lengths: groups": (lambda: m.correlate([1, 2], [1, 2], groups=["a"]), "groups", r"\(1,\)"),
    "queries: ra_nwg": (lambda: m.ra_nwg([[5], [5]], [[5], [5], [5]], 1), "chosen", r"\(3,\)"),
    "queries: ideal": (lambda: m.alpha_ndcg([[5, 5]], ideal=[[5]]), "ideal", r"\(1, 1\)"),
    "shape of the mask": (lambda: m.udcg([[0.5, 0.5]], mask=[True, True]), "mask", r"\(2,\)"),
    "mask of numbers": (lambda: m.udcg([0.5], mask=[1]), "mask", r"\[1\]"),
    "mask of a table": (lambda: m.coverage([[5, 5]], mask=[[True, True]]), "mask", r"\(1, 2\)"),
    "answerable of numbers": (lambda: m.coverage([[5, 5]], answerable=[1, 0]), "answerable", r"\[1, 0\]"),
    "grade of 6": (lambda: m.ra_nwg([5, 6], [5], 1), r"pool\[1\]", "6"),
    "grade of 4.5": (lambda: m.grade_weights([4.5]), r"pool_grades\[0\]", "4.5"),
    "too many chosen": (lambda: m.ra_nwg([5, 4], [5, 4], 1), "chosen", "2 passages"),
    "too many chosen, masked": (
        lambda: m.harm([[5, 4, 3]], 1, chosen_mask=[[True, True, False]]), "chosen", "2 passages"),
    "k of True": (lambda: m.precision([1], True), "k: ", "True"),
    "rating of 6": (lambda: m.coverage([[6, 1]]), r"ratings\[0, 0\]", "6"),
    "eta of 7": (lambda: m.coverage([[5, 1]], eta=7), "eta", "7"),
    "many tables": (lambda: m.required_subset(np.zeros((2, 3, 4))), "ratings", r"\(2, 3, 4\)"),
    "more relevant than retrieved": (lambda: m.t(4, 3), "n_p", "4"),
    "more relevant than there are": (lambda: m.f(3, 5, 2), "total", "2"),
    "lengths: topk": (lambda: m.f([1, 2], [5, 5, 5], 4), "k.shape", r"\(3,\)"),
    "more listed than relevant": (lambda: m.recall([1, 1, 1], 2), "total", "2"),
    "an ideal without what was found": (lambda: m.ndcg([3, 2], ideal=[1]), "ideal", r"\[1\]"),
    "weights that do not sum to 1": (lambda: m.seper_soft([0.5, 0.4], [[1.0], [1.0]]), "weights", r"\[0.5, 0.4\]"),
    "entailment over 1": (lambda: m.seper_soft([1.0], [[1.5]]), r"entailment\[0, 0\]", "1.5"),
    "an unknown cluster": (lambda: m.seper_hard([1.0], [1], [[True]]), "clusters", "1"),
    "matches of numbers": (lambda: m.seper_hard([1.0], [0], [[1]]), "matches", r"\[\[1\]\]"),
    "equivalence not square": (lambda: m.cluster([[True, False]]), "equivalent", r"\(1, 2\)"),
    "answer without tokens": (lambda: m.sample_weights([[-1.0], []]), r"logprobs\[1\]", r"\[\]"),
    "log-probability over 0": (lambda: m.sample_weights([[0.5]]), r"logprobs\[0\]\[0\]", "0.5"),
    "unknown scheme": (lambda: m.sample_weights([[-1.0]], "median"), "scheme", "'median'"),
    "unknown correlation": (lambda: m.correlate([1, 2], [1, 2], "kendall"), "kind", "'kendall'"),
    "billions of draws": (lambda: m.paired_bootstrap([1.0], [0.5], draws=2**31), "draws", "1000000"),
    "no beliefs": (lambda: m.attribution([]), "beliefs", r"\[\]"),
    "answer of None": (lambda: m.exact_match(None, "a"), "answer", "None"),
    "unknown metric": (lambda: m.find("udgc"), "metric", "'udgc'"),
    "pad: rows of two widths": (lambda: m.pad([np.zeros((1, 2)), np.zeros((1, 3))]), "lists", "2"),
    "pad: not finite": (lambda: m.pad([[1.0], [float("nan")]]), r"lists\[1\]\[0\]", "nan"),
    "learned: another k": (lambda: m.LearnedUdcg(2).fit([[0.1, 0.2, 0.3]], [1], [0]), "contexts", "k = 2"),
    "learned: nothing to learn": (
        lambda: m.LearnedUdcg(1).fit([[0.1], [0.2]], [1, 1], [0, 0]), "outcome", "different"),
    "learned: lengths": (lambda: m.LearnedUdcg(1).fit([[0.1], [0.2]], [1, 1], [0]), "groups", r"\(1,\)"),
    "learned: not fitted": (lambda: m.LearnedUdcg(1)([0.1]), "LearnedUdcg", "fit"),
    "learned: a dictionary of another k": (
        lambda: m.LearnedUdcg.from_dict({"k": 2, "alpha": [1], "beta": [1, 1]}), "alpha", r"\(1,\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error_that_names_it(name):
    call, argument, value = BAD[name]
    with pytest.raises(InvalidInput, match=argument) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "allowed: " in message
    with pytest.raises(ValueError, match=value):
        raise ValueError(message)


def test_the_excess_of_float_arithmetic_is_clipped():
    assert m.distracting_effect(1 + 1e-10) == 0
    assert m.udcg([1 + 1e-10]) == m.udcg([1.0])
    with pytest.raises(InvalidInput):
        m.distracting_effect(1 + 1e-8)


def test_results_do_not_share_memory_with_arguments():
    p = np.array([0.1, 0.9])
    beliefs = np.array([0.1, 0.4])
    for result in (
        m.distracting_effect(p),
        m.utility(np.array([True, True]), p),
        m.kernel(p, p, "forward"),
        m.attribution(beliefs),
        m.pad([p]).values,
        m.pad([p]).mask,
    ):
        assert not np.shares_memory(result, p)
        assert not np.shares_memory(result, beliefs)
    p.flags.writeable = False
    m.udcg(p)
    m.ndcg(p)
    m.alpha_ndcg(np.broadcast_to(p, (3, 2)))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float16, np.float32, np.int64])
def test_any_kind_of_number_comes_in(dtype):
    rel = np.array([1, 0, 1, 1], dtype=dtype)
    assert m.ndcg(rel) == m.ndcg([1.0, 0.0, 1.0, 1.0])
    assert m.average_precision(rel) == m.average_precision([1, 0, 1, 1])
    assert m.coverage(rel.reshape(2, 2), eta=1) == 1
    assert isinstance(m.udcg(rel), float)


@pytest.mark.parametrize(
    "call",
    [
        lambda: m.utility([1, 0], [0.5]),
        lambda: m.t([3, 2], [5]),
        lambda: m.f([3, 2], [5, 5], [8]),
        lambda: m.density([0.5, 1.0], [10, 20], [1.0], [10]),
        lambda: m.recall([[1], [1]], [2]),
        lambda: m.ndcg([[1, 0], [1, 0]], ideal=[[1, 1]]),
        lambda: m.ra_nwg([[5, 4]], [[5], [4]], 2),
        lambda: m.pct_proc([[5, 4], [5, 4]], [[5], [5]], [[5]], 2),
        lambda: m.udcg_of_parts([0.5, 0.5], [-0.5]),
    ],
)
def test_a_list_of_one_is_not_stretched_to_the_length_of_another(call):
    with pytest.raises(InvalidInput, match="shape"):
        call()
