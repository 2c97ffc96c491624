"""Agreement of labels, beside scikit-learn."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from ragguard.analysis.validation.agreement import cohen_kappa
from ragguard.metrics.agreement import auc

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30)


@given(PAIRS)
def test_kappa_is_scikit_learns(pairs) -> None:
    first, second = zip(*pairs, strict=True)
    if len({*first, *second}) < 2:
        assert math.isnan(cohen_kappa(first, second))
        return
    assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
    grades = cohen_kappa(first, second, quadratic=True)
    labels = list(range(6))
    assert grades == pytest.approx(
        cohen_kappa_score(first, second, weights="quadratic", labels=labels), abs=1e-9
    )


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_auc_is_scikit_learns(pairs) -> None:
    scores, positive = zip(*pairs, strict=True)
    if len(set(positive)) < 2:
        assert math.isnan(auc(scores, positive))
    else:
        assert auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-9)
