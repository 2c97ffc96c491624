"""Notices: each subject is logged at once, then rarely."""

from __future__ import annotations

import logging

from ragguard.runtime.faults import Notices


def test_a_subject_is_logged_at_once_and_again_after_the_pause_with_the_number_left_out(caplog):
    now = [0.0]
    notices = Notices(lambda: now[0])
    with caplog.at_level(logging.WARNING, "ragguard"):
        for _ in range(5):
            notices.warn("disk", "the disk is full", 60)
        notices.warn("engine", lambda: "the engine is away", 60)
        now[0] = 61.0
        notices.warn("disk", "the disk is full", 60)
    assert [record.getMessage() for record in caplog.records] == [
        "the disk is full", "the engine is away", "the disk is full (4 more since this was last logged)",
    ]  # fmt: skip


def test_once_is_once_and_the_sentence_is_made_only_then(caplog):
    notices, made = Notices(), []
    for _ in range(3):
        notices.once("run", lambda: made.append(1) or "a run without steps")
    assert made == [1]


def test_subjects_without_end_are_not_remembered_without_end(caplog):
    notices = Notices()
    assert sum(notices.once(f"subject {n}", "x") for n in range(1000)) == 256
