"""One model judged by labels, decisions and samples, on a small size."""

import numpy as np
import pytest

from ragguard import connect
from studies.decisions import Way, _quality, calibration_error, prose_passages, study, world_passages
from studies.judge_server import distinct


def test_calibration_error_is_the_mean_gap_of_bins_by_hand():
    p, truth = np.array([0.05, 0.05, 0.9, 1.0]), np.array([False, True, True, True])
    assert calibration_error(p, truth) == pytest.approx((abs(0.1 - 1) + abs(1.9 - 2)) / 4)


def test_equal_beginnings_are_read_once():
    assert distinct([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3], [7]]) == 6


def test_a_model_that_says_no_label_has_no_number_by_labels():
    silent, sure = np.full((3, 4), np.nan), np.tile([0.9, 0.1, 0.8, 0.2], (3, 1))
    ways = {"labels": Way(silent, ()), "decisions": Way(sure, ())}
    table = _quality(ways, np.array([True, False, True, False]), np.array([0, 0, 1, 1]), 0, "smol")
    assert [row[1:10] for row in table.rows] == [(None,) * 9, (None,) * 9]
    assert [row[11:] for row in table.rows] == [(100.0, 0), (0.0, 4)]
    assert table.rows[0][10] is None


def test_each_question_has_a_passage_that_answers_it():
    for passages in (world_passages(3, seed=0), prose_passages(4)):
        by_question = {one.question: False for one in passages}
        for one in passages:
            by_question[one.question] |= one.relevant
        assert len(by_question) in (3, 4)
        assert all(by_question.values())
        assert not all(one.relevant for one in passages)


@pytest.mark.slow
async def test_decisions_have_the_numbers_of_labels_in_fewer_requests_and_samples_spread():
    quality, costs = await study(connect("nano"), questions=2)
    by_way = {row[0]: row for row in quality.rows}
    spread = quality.columns.index("spread over repeats")
    assert by_way["labels"][1:7] == pytest.approx(by_way["decisions"][1:7], abs=1e-6)
    assert by_way["samples"][spread] > 0.005 > by_way["decisions"][spread]
    requests, sent = ({row[:2]: row[at] for row in costs.rows} for at in (2, 3))
    assert [requests[way, 3] for way in ("labels", "decisions", "samples")] == [3, 1, 3]
    assert requests["decisions", 1] == requests["labels", 1] == 1
    assert sent["decisions", 3] < sent["labels", 3] / 2
