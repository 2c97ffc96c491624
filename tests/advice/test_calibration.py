"""The promise of advice: it holds in expectation on runs it has not seen, and is refused where it cannot."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.advice.calibration import (
    AdviceCalibration,
    Trace,
    check_runs,
    choose_threshold,
    stop_at,
)
from ragguard.errors import CalibrationError, InvalidInput
from ragguard.guard.calibration import Calibration
from ragguard.metrics.conformal import Promise
from ragguard.storage.files.calibration import check_same

LEVELS = [0.0, 0.1, 0.25, 0.5, 0.5, 0.75, 0.9, 1.0]
TRACES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(LEVELS), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=6
    ).map(lambda pairs: Trace([s for s, _ in pairs], [c for _, c in pairs])),
    min_size=4,
    max_size=12,
)


def stop(trace, level):
    """The place at which a run stops that stops where the sufficiency is more than a level; from 0."""
    for at, value in enumerate(trace.sufficiency):
        if value > level:
            return at
    return len(trace.correct) - 1


def loss(trace, level, levels):
    """The largest loss of stopping at this level or at a higher one, as the docstring of the module has it."""
    higher = [one for one in levels if one >= level]
    return max(max(0.0, trace.correct[-1] - trace.correct[stop(trace, one)]) for one in higher)


def by_definition(traces, max_loss):
    """The least level that keeps the bound, by trying all of them."""
    levels = sorted({-1.0, *(value for trace in traces for value in trace.sufficiency)})
    n = len(traces)
    for level in levels:
        mean = sum(loss(trace, level, levels) for trace in traces) / n
        if (n * mean + 1) / (n + 1) <= max_loss + 1e-12:
            return level, mean
    raise AssertionError("the highest level never stops, and costs nothing")


@given(TRACES, st.sampled_from([0.25, 0.3, 0.5, 0.8]))
def test_the_threshold_is_the_least_that_keeps_the_bound(traces, max_loss):
    level, mean = by_definition(traces, max_loss)
    threshold, found, saved, _ = choose_threshold(traces, Promise(max_loss))
    assert found == pytest.approx(mean)
    assert [stop_at(trace.sufficiency, threshold) - 1 for trace in traces] == [
        stop(one, level) for one in traces
    ]
    made = sum(stop(one, level) + 1 for one in traces)
    assert saved == pytest.approx(1 - made / sum(len(one.correct) for one in traces))


def draw(rng, n):
    """Runs whose answers mostly get better with sufficiency, and sometimes worse with a further step."""
    traces = []
    for _ in range(n):
        steps = int(rng.integers(1, 7))
        known = np.maximum.accumulate(rng.random(steps))
        right = rng.random(steps) < known**2
        traces.append(
            Trace(np.clip(known + rng.normal(0, 0.15, steps), 0, 1).tolist(), right.astype(float).tolist())
        )
    return traces


def cost(traces, threshold):
    """The mean correctness that stopping when advised costs, beside going on to the end."""
    return np.mean([one.correct[-1] - one.correct[stop_at(one.sufficiency, threshold) - 1] for one in traces])


@pytest.mark.parametrize(
    ("max_loss", "n", "draws", "confidence"),
    [(0.05, 40, 250, None), (0.1, 60, 120, None), (0.02, 120, 80, None), (0.1, 60, 120, 0.9)],
)
def test_the_loss_on_new_runs_stays_at_the_promise_in_expectation_or_with_its_confidence(
    max_loss, n, draws, confidence
):
    rng = np.random.default_rng(int(1000 * max_loss))
    drawn = [choose_threshold(draw(rng, n), Promise(max_loss, confidence)) for _ in range(draws)]
    losses = [cost(draw(rng, 400 if confidence else 100), choice.threshold) for choice in drawn]
    error = np.std(losses) / math.sqrt(draws)
    assert np.mean(losses) <= max_loss + 2 * error
    assert np.mean([choice.saved for choice in drawn]) > 0.02, (
        "a promise that is kept by never stopping is no help"
    )
    if confidence is not None:
        assert np.mean(np.array(losses) > max_loss) <= 1 - confidence + 2 * math.sqrt(0.09 / draws)


def test_a_larger_loss_lets_runs_stop_earlier():
    traces = draw(np.random.default_rng(3), 300)
    thresholds = [choose_threshold(traces, Promise(loss)).threshold for loss in (0.01, 0.05, 0.2, 0.9)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[-1] < thresholds[0]


def test_sufficiency_that_says_nothing_never_stops_a_run():
    """The answers get right at the end alone, and the sufficiency is as high before."""
    traces = [Trace([0.9, 0.8], [0.0, 1.0])] * 60
    threshold, found, saved, _ = choose_threshold(traces, Promise(0.02))
    assert (found, saved) == (0.0, 0.0)
    assert threshold > 0.9


def test_runs_that_are_right_at_once_stop_at_once():
    made = [Trace([0.1, 0.2, 0.3, 0.4], [1.0] * 4)] * 60
    threshold, found, saved, _ = choose_threshold(made, Promise(0.02))
    assert (threshold, found, saved) == (0.0, 0.0, 0.75)


def test_too_few_runs_are_refused_with_their_least_number():
    check_runs(49, 0.02)
    with pytest.raises(CalibrationError, match=r"48 runs .* at least 49"):
        check_runs(48, 0.02)
    for wrong in (0, 1, -0.1, float("nan"), True, "0.02"):
        with pytest.raises(InvalidInput, match="max_loss"):
            check_runs(100, wrong)


def test_outcomes_that_do_not_fit_the_steps_are_refused():
    with pytest.raises(InvalidInput, match="2 here"):
        Trace([0.1, 0.2], [1.0])
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        Trace([0.1], [2.0])


def test_a_calibration_is_saved_and_loaded(tmp_path):
    models = {"engine": "e", "judge": "j", "entailer": "n", "prompts": "p", "judge_prompts": "q"}
    found = AdviceCalibration(0.5, 0.02, 80, 3, loss=0.01, steps_saved=0.5, **models)
    found.save(tmp_path / "advice.json")
    assert AdviceCalibration.load(tmp_path / "advice.json") == found
    check_same("this RagGuard", found, models)
    with pytest.raises(CalibrationError, match="made with entailer n, this RagGuard has other"):
        check_same("this RagGuard", found, models | {"entailer": "other"})


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kind": "advice", "format": 2}', '{"kind": "advice", "format": 3}']
)
def test_a_file_that_is_none_is_refused(tmp_path, text):
    path = tmp_path / "advice.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"advice\.json"):
        AdviceCalibration.load(path)


def test_the_calibration_of_a_guard_is_another_kind(tmp_path):
    guards = Calibration(0.1, 0.05, 60, 0, gold_loss=0.0, distractors_dropped=0.5, min_keep=1, engine="e",
                         judge="j", prompts="p", passages_kept=2.0)  # fmt: skip
    guards.save(tmp_path / "guard.json")
    with pytest.raises(CalibrationError, match="another kind or format: "):
        AdviceCalibration.load(tmp_path / "guard.json")
    advice = AdviceCalibration(0.5, 0.02, 80, 3, loss=0.01, steps_saved=0.5, engine="e", judge="j", entailer="n",
                               prompts="p", judge_prompts="q")  # fmt: skip
    advice.save(tmp_path / "advice.json")
    with pytest.raises(CalibrationError, match=r"another kind or format: .*advice.*; calibrate again$"):
        Calibration.load(tmp_path / "advice.json")
