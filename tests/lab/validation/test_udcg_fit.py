"""Weights of UDCG that are fitted on graded answers, and how they do on questions that they have not seen."""

import math

import numpy as np
import pytest

from ragguard.lab.validation.contexts import Context, Scored
from ragguard.lab.validation.correlations import measured, tables
from ragguard.lab.validation.udcg_fit import FITTED_GAMMA, LEARNED, fit_udcg, held_out_values
from ragguard.metrics import udcg, utility
from ragguard.records import Passage, Score


def context(question, number, utilities, outcome):
    passages = tuple(Passage(f"{question} {number} {at}") for at in range(len(utilities)))
    scores = tuple(
        Score(name, value, "passage", "r", position=at)
        for at, utility in enumerate(utilities, 1)
        for name, value in (("p_relevant", float(utility > 0)), ("p_abstain", 1 - abs(utility)))
    )
    made = Context(
        id=f"{question}/{number}", question_id=question, question=question, passages=passages, outcome=outcome
    )
    return Scored(made, {"udcg": float(udcg(utilities))}, scores)


def utilities_of(scored):
    pairs = zip(scored.of_passages("p_relevant"), scored.of_passages("p_abstain"), strict=True)
    return [float(utility(r, p)) for r, p in pairs]


def worth_of(gamma, by_place=(1.0, 1.0, 1.0)):
    return lambda u: float((np.maximum(u, 0) + gamma * np.minimum(u, 0)) @ np.array(by_place[: len(u)]))


def world(worth, questions=40, contexts=8, seed=0, length=3):
    draw = np.random.default_rng(seed)
    for question in range(questions):
        for number in range(contexts):
            utilities = draw.uniform(-1, 1, length)
            yield context(f"q{question}", number, utilities.tolist(), worth(utilities))


def test_the_weight_of_harm_behind_the_outcomes_is_found():
    for gamma in (0.0, 1.0):
        found = fit_udcg(list(world(worth_of(gamma))))
        assert found.utility["gamma"] == pytest.approx(gamma, abs=0.1)
        assert found.held_out[FITTED_GAMMA].value > 0.95
        assert found.gains[FITTED_GAMMA].low > 0


def test_weights_by_place_win_where_places_differ_alone():
    found = fit_udcg(list(world(worth_of(0.3, (2.0, 0.5, 0.1)))))
    assert found.gains[LEARNED].low > 0
    alpha = found.utility["theta"]["alpha"]
    assert alpha[0] > alpha[1] > alpha[2]


def test_random_outcomes_show_no_gain_on_unseen_questions():
    draw = np.random.default_rng(3)
    found = fit_udcg(list(world(lambda _: float(draw.integers(3)))))
    assert all(gain.low < 0 < gain.high or gain.value < 0 for gain in found.gains.values())


def test_a_context_is_never_fitted_on_its_own_question():
    """Each question has its outcomes the other way round in one copy: only its own value may depend on its outcomes."""
    some = list(world(worth_of(1.0), questions=10))
    turned = [
        one if one.context.question_id != "q0"
        else context("q0", at, utilities_of(one), -one.context.outcome)
        for at, one in enumerate(some)
    ]  # fmt: skip
    before, after = held_out_values(some), held_out_values(turned)
    own = [at for at, one in enumerate(some) if one.context.question_id == "q0"]
    for name in (FITTED_GAMMA, LEARNED):
        assert before[name][own] == pytest.approx(after[name][own])


def test_the_tables_set_the_fits_beside_udcg():
    first, second = tables(measured(list(world(worth_of(1.0)))))
    names = [row[0] for row in first.rows]
    assert {FITTED_GAMMA, LEARNED, "udcg"} == set(names)
    assert names[-1] == "udcg"
    assert any("from a fit on four fifths" in note for note in first.notes)
    assert all(math.isfinite(row[1]) for row in second.rows)
