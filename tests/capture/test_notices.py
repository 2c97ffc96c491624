"""Notices: each subject is logged at once, then rarely; the sentences name the way out."""

from __future__ import annotations

import logging

from ragguard.capture.notices import Notices, never_called, unknown_key


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


def test_an_unknown_key_names_the_one_that_was_meant():
    sentence = unknown_key("ragguard_qestion", ["ragguard_question", "ragguard_run_id"])
    assert "'ragguard_qestion'" in sentence
    assert "did you mean 'ragguard_question'?" in sentence


def test_a_declared_tool_that_was_never_called_is_told_beside_those_that_were():
    sentence = never_called(["serach"], ["search", "search", "calc"])
    assert "'serach'" in sentence
    assert "'calc', 'search'" in sentence
