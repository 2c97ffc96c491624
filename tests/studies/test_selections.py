"""Measures of graded selections, beside an analysis that was written out with SciPy."""

import numpy as np
import pytest
from scipy import stats
from support.rows import rows_of

from studies.selections import (
    Selection,
    Selections,
    correlations,
    segments,
    tables,
)


def selection(k, n_p, total=2, *, data="x", search="s", question="q", wide=None, ndcg=0.5):
    return Selection(
        data=data, search=search, question=question, k=k, n_p=n_p, total=total, n_p_2k=wide,
        values={"nDCG@K": ndcg, "nDCG@K of the list": ndcg},
    )  # fmt: skip


@pytest.fixture(scope="module")
def chance():
    """Three hundred selections of forty questions, whose grades go with F at α = 0.3, with noise."""
    rng = np.random.default_rng(3)
    graded = []
    for number in range(300):
        k, total = int(rng.integers(2, 9)), int(rng.integers(2, 5))
        n_p = int(rng.integers(0, min(k, total) + 1))
        wide = int(rng.integers(n_p, total + 1))
        fit = n_p / (0.3 * k + 0.7 * total)
        grade = float(np.clip(round(1 + 4 * fit + rng.normal(0, 0.4)), 1, 5))
        graded.append((
            selection(k, n_p, total, search="ab"[number % 2], question=f"q{number % 40}", wide=wide, ndcg=rng.random()),
            grade,
        ))  # fmt: skip
    return Selections.of(graded)


def best(values, grade):
    """The highest correlation of 101 α, by SciPy."""
    found = [stats.spearmanr(values(a), grade).statistic for a in np.linspace(0, 1, 101)]
    at = int(np.nanargmax(found))
    return found[at], at / 100


FORMULAS = {
    "T": lambda s, a: (1 - a) * s.n_p - a * ((s.k - s.n_p) / s.k),
    "T_u": lambda s, a: (1 - a) * s.n_p - a * (s.k - s.n_p),
    "F": lambda s, a: s.n_p / (a * s.k + (1 - a) * s.total),
    "F_e": lambda s, a: np.where(
        s.n_p_2k > 0, s.n_p / np.where(s.n_p_2k > 0, a * s.k + (1 - a) * s.n_p_2k, 1), 0
    ),
}
MEASURES = {
    name: lambda s, a, formula=formula: np.round(formula(s, a), 12) for name, formula in FORMULAS.items()
}
"""Each formula, with values that are equal but for rounding as ties."""


@pytest.mark.parametrize("measure", MEASURES)
def test_correlations_and_best_alphas_are_scipys(chance, measure):
    rows = rows_of(correlations(chance))
    for name, part in (
        ("x-n", chance.where(chance.k < chance.total)),
        ("x-w", chance.where(chance.k >= chance.total)),
    ):
        value, alpha = best(lambda a, part=part: MEASURES[measure](part, a), part.grade)
        assert rows[name][measure] == pytest.approx(value, abs=1e-9)
        # Several α may be as good; the one that is told must reach the best.
        told = MEASURES[measure](part, rows[name][f"α of {measure}"])
        assert stats.spearmanr(told, part.grade).statistic == pytest.approx(value, abs=1e-9)
        assert 0 <= alpha <= 1
        assert rows[name]["contexts"] == len(part)


def test_searches_and_segments_are_analysed_by_themselves(chance):
    by_search = rows_of(correlations(chance, by_search=True))
    part = chance.where((chance.k >= chance.total) & (chance.search == "b"))
    value, _ = best(lambda a: MEASURES["F"](part, a), part.grade)
    assert by_search["x-w, b"]["F"] == pytest.approx(value, abs=1e-9)
    part = chance.where(chance.segment == 2)
    rows = rows_of(segments(chance, least=10))
    f, _ = best(lambda a: MEASURES["F"](part, a), part.grade)
    f_e, _ = best(lambda a: MEASURES["F_e"](part, a), part.grade)
    assert rows["x: 2"]["F"] == pytest.approx(f, abs=1e-9)
    assert rows["x: 2"]["F_e − F"] == pytest.approx(f_e - f, abs=1e-9)
    assert rows["x: 2"]["contexts"] == len(part)
    assert "fewer than 300 contexts are not shown" in segments(chance).markdown()


@pytest.mark.parametrize(
    ("k", "total", "segment"), [(2, 4, 0.5), (2, 3, 0.7), (3, 4, 0.8), (5, 4, 1.0), (10, 4, 2.0)]
)
def test_ratios_keep_their_first_digit(k, total, segment):
    assert Selections.of([(selection(k, 1, total), 3.0)]).segment.tolist() == [segment]


def test_all_tables_have_the_columns_of_their_rows(chance):
    made = tables(chance, least=20, draws=10)
    assert len({table.name for table in made}) == len(made) == 8
