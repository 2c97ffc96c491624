"""Calibration: the promise holds on data it has not seen, and is refused where it cannot."""

import math

import numpy as np
import pytest

from ragguard import DistractorGuard
from ragguard.errors import CalibrationError, InvalidInput
from ragguard.guard.calibration import (
    Calibration,
    Example,
    calibrated,
    check_promise,
    choose_threshold,
    examples_of,
    gold_of,
    mean_kept,
)
from ragguard.guard.policies import Judged, choose
from ragguard.metrics.conformal import Promise
from ragguard.records import Passage, RetrievalStep


def draw(rng, n):
    """Examples in which gold is mostly, not always, more useful than the rest."""
    utilities, gold = [], []
    for _ in range(n):
        flags = np.zeros(int(rng.integers(2, 9)), dtype=bool)
        flags[: int(rng.integers(1, 3))] = True
        values = np.where(flags, rng.normal(0.4, 0.4, len(flags)), rng.normal(-0.3, 0.4, len(flags)))
        utilities.append(np.clip(values, -1, 1).tolist())
        gold.append(flags.tolist())
    return utilities, gold


def loss_at(threshold, utilities, gold, min_keep):
    losses = []
    for values, flags in zip(utilities, gold, strict=True):
        kept = {index for index, value in enumerate(values) if value >= threshold}
        for index in sorted(range(len(values)), key=lambda i: -values[i]):
            if len(kept) < min_keep:
                kept.add(index)
        mine = [index for index, flag in enumerate(flags) if flag]
        losses.append(sum(index not in kept for index in mine) / len(mine))
    return float(np.mean(losses))


@pytest.mark.parametrize("min_keep", [0, 1, 3])
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_the_promise_holds_on_new_examples_in_expectation_or_with_its_confidence(min_keep, confidence):
    rng = np.random.default_rng(min_keep)
    drawn = [choose_threshold(*draw(rng, 60), Promise(0.1, confidence), min_keep) for _ in range(60)]
    losses = [loss_at(choice.threshold, *draw(rng, 200), min_keep) for choice in drawn]
    error = np.std(losses) / math.sqrt(len(losses))
    assert np.mean(losses) <= 0.1 + 2 * error
    assert np.mean(losses) >= (0.03 if confidence is None else 0.01), (
        "a promise kept by dropping nothing is no help"
    )
    over = np.mean(np.array(losses) > 0.1)
    if confidence is None and min_keep < 3:  # three kept passages hold nearly all gold
        assert 0.15 < over < 0.7, "in expectation alone, single calibrations lose more"
        said = np.mean([choice.spread.over for choice in drawn])
        assert said == pytest.approx(over, abs=0.2), "and say how many of them"
    if confidence is not None:
        assert over <= 1 - confidence + 2 * math.sqrt(0.09 / len(losses))


def test_no_more_gold_is_put_at_risk_than_the_distractors_ask_for():
    """`min_keep` holds the only gold of each example; a retrieval with two golds must keep both."""
    utilities = [[0.95, 0.4, -0.8]] * 40
    gold = [[True, False, False]] * 40
    threshold, loss, dropped = choose_threshold(utilities, gold, Promise(0.05), 1)[:3]
    assert (loss, dropped) == (0.0, 1.0)
    assert 0.4 < threshold < 0.41
    assert mean_kept([[0.9, 0.85, 0.3]], threshold, 1) == 2


def test_the_reported_loss_is_the_loss():
    utilities, gold = draw(np.random.default_rng(1), 80)
    threshold, loss, dropped = choose_threshold(utilities, gold, Promise(0.1), 1)[:3]
    assert loss == pytest.approx(loss_at(threshold, utilities, gold, 1))
    assert 0 < dropped <= 1


def test_a_larger_loss_allows_a_higher_threshold():
    data = draw(np.random.default_rng(2), 100)
    thresholds = [choose_threshold(*data, Promise(limit), 1).threshold for limit in (0.02, 0.05, 0.2, 0.5)]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[-1]


def test_unjudged_passages_are_never_dropped():
    threshold, loss, dropped, _ = choose_threshold(
        [[None, -1.0]] * 30, [[True, False]] * 30, Promise(0.05), 0
    )
    assert (loss, dropped) == (0.0, 1.0)
    assert -1 < threshold < -0.99


@pytest.mark.parametrize(
    ("limit", "confidence", "least"), [(0.05, None, 19), (0.1, None, 9), (0.05, 0.9, 45)]
)
def test_too_few_examples_are_refused(limit, confidence, least):
    check_promise(least, limit, confidence=confidence)
    with pytest.raises(CalibrationError, match=f"at least {least}"):
        check_promise(least - 1, limit, confidence=confidence)


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 1}, {"limit": -0.1}, {"limit": 0.1, "confidence": 1}]
)
def test_limits_that_cannot_be_right_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Promise(**wrong)


def with_erring_judge(rng, n):
    """One gold passage, which the judge misjudges once in ten times, among five that do nothing."""
    rows = []
    for _ in range(n):
        said = [0.1 if rng.random() < 0.1 else 0.9, *rng.uniform(0.01, 0.1, 5)]
        p = [0.05, *rng.uniform(0.9, 0.99, 5)]
        rows.append([
            Judged(Passage("x"), at, (2 * r - 1) * (1 - q), q, p_relevant=r)
            for at, (r, q) in enumerate(zip(said, p, strict=True), 1)
        ])  # fmt: skip
    return rows, [[True] + [False] * 5] * n


@pytest.mark.parametrize(("order", "least", "most"), [("help", 0.95, 1.0), ("utility", 0.0, 0.05)])
def test_calibration_by_help_drops_what_one_by_utility_must_keep_where_the_judge_errs(order, least, most):
    judged, gold = with_erring_judge(np.random.default_rng(0), 200)
    found = calibrated(judged, gold, 0.05, 1, order, skipped=0, engine="e", judge="j", prompts="p")
    assert found.gold_loss <= 0.05
    assert least <= found.distractors_dropped <= most
    gone = choose([found.policy], judged[0], 1)
    assert set(gone) <= {2, 3, 4, 5, 6}
    assert (len(gone) == 5) == (order == "help")


def test_calibration_of_an_unknown_order_is_refused():
    with pytest.raises(InvalidInput, match="'help' or 'utility'"):
        DistractorGuard("nano").calibrate([], order="gain")


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "calibration.json"
    found = Calibration(0.1, 0.05, 100, 3, 0.04, 0.6, 1, "m/first_token", "m/first_token", "default/1", 2.5)
    found.save(path)
    assert Calibration.load(path) == found


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "threshold": 0}'])
def test_a_broken_file_is_one_clear_error(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"broken\.json"):
        Calibration.load(path)
    with pytest.raises(CalibrationError):
        Calibration.load(tmp_path / "missing.json")


def test_gold_is_known_by_grade_or_metadata():
    assert [gold_of(Passage("", grade=grade)) for grade in (1, 3, 4, 5)] == [False, False, True, True]
    assert gold_of(Passage("", metadata={"gold": True})) is True
    assert gold_of(Passage("", metadata={"kind": "near_miss"})) is False
    assert gold_of(Passage("")) is None
    known = RetrievalStep(query="q", passages=[Passage("", grade=5), Passage("", grade=1)])
    unknown = RetrievalStep(query="q", passages=[Passage("", grade=5), Passage("")])
    assert [example.gold for example in examples_of([known, unknown, RetrievalStep()])] == [[True, False]]


def test_flags_must_match_the_passages():
    with pytest.raises(InvalidInput, match="gold"):
        Example("q", [Passage("a")], [True, False])
