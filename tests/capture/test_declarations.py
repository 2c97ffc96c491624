"""The calls that were not taken as retrievals, in the warning about a run without one; what users declare."""

from __future__ import annotations

import logging

import pytest

from ragguard import RagGuard
from ragguard.capture.declarations import CallLog, checked_tools, warn_of_unknown
from ragguard.capture.events import RunEnded
from ragguard.errors import InvalidInput
from ragguard.records import Passage


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_the_first_run_without_a_step_says_once_what_was_seen_and_what_to_declare(recorder, caplog):
    for run_id in ("r1", "r2"):
        recorder.run_started(run_id, "who?")
        recorder.here.calls.seen("tool", "search")
        recorder.here.calls.seen("tool", "search")
        recorder.here.calls.seen("model", "ChatOpenAI")
        recorder.run_ended(RunEnded(run_id, answer="Ada"))
    (warning,) = warnings(caplog)
    assert "'r1' ended without a retrieval" in warning
    assert "tool 'search', model 'ChatOpenAI'" in warning
    assert "tools={'search': SPLITTER}" in warning


def test_where_retrievals_are_captured_a_run_that_needed_none_is_no_news(recorder, caplog):
    recorder.run_started("r1", "who?")
    recorder.step_started("s", "r1", "who?")
    recorder.step_ended("s", [Passage("Ada")])
    recorder.run_ended(RunEnded("r1", answer="Ada"))
    recorder.run_started("r2", "hello")
    recorder.run_ended(RunEnded("r2", answer="hello"))
    assert not warnings(caplog)
    recorder.run_started("r3", "and now?")
    recorder.here.calls.seen("tool", "wiki")
    recorder.run_ended(RunEnded("r3", answer="Ada"))
    assert "'wiki'" in warnings(caplog)[0]


@pytest.mark.parametrize("status", ["error", "cancelled", "interrupted"])
def test_a_run_that_did_not_end_well_is_no_sign_of_a_missing_declaration(recorder, caplog, status):
    recorder.run_started("r", "who?")
    recorder.run_ended(RunEnded("r", status=status))
    assert not warnings(caplog)


def test_names_without_end_are_not_kept_without_end():
    log = CallLog()
    for number in range(1000):
        log.seen("tool", f"tool {number}")
    assert "'tool 0'" in log.what_to_do()
    assert " and 43 more" in log.what_to_do()


def test_a_tool_that_was_in_no_warning_is_named_in_another_one(caplog):
    log = CallLog()
    log.without_steps("r0", is_expected=True)  # a health check
    for number, tool in enumerate(["search", "search", "lookup"]):
        log.seen("tool", tool)
        log.without_steps(f"r{number + 1}", is_expected=True)
    assert [record.args[0].split("'")[1] for record in caplog.records] == ["r0", "r1", "r3"]


def test_empty_run_warns_though_others_have_retrieved(caplog):
    with RagGuard("nano", store=None, scorers=()) as rg:
        with rg.run("Who?") as run:
            run.retrieved("who", ["Ada"])
        with rg.run("Where?") as empty:
            pass
    assert f"the run {empty.id!r} ended without a retrieval" in caplog.text


def test_unknown_key_is_named_beside_the_known_ones(caplog):
    warn_of_unknown({"ragguard_qestion": 1, "other": 2}, "tag", ["ragguard_run_id", "ragguard_question"])
    (sentence,) = warnings(caplog)
    assert sentence.startswith("'ragguard_qestion' is not a key")
    assert sentence.endswith("Known keys: ragguard_question, ragguard_run_id")


@pytest.mark.parametrize("tools", [str.split, {"a": "text"}, {"a": None}, {"a": 3}, "a", [1]])
def test_declaration_of_a_tool_without_a_splitter_is_refused(tools):
    with pytest.raises(InvalidInput, match="tools"):
        checked_tools(tools)
