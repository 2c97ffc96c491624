"""The run of a framework's outermost call, and the results of tools' calls in their forms."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from ragguard.capture.handle import RunHandle
from ragguard.capture.pipeline_run import PipelineRun, tool_ended
from ragguard.capture.splitters import json_items
from ragguard.capture.tool_outputs import ToolResult
from ragguard.records import Passage


def retrieves(run: PipelineRun) -> None:
    run.begin("hop")
    run.recorder.step_started(f"{run.id} step", run.id, "hop")
    run.recorder.step_ended(f"{run.id} step", [Passage("a")])


def test_run_that_retrieves_nothing_is_not_recorded(recorder, captured):
    PipelineRun(recorder, "a").end("an answer")
    assert captured.events == []


def test_run_ends_once_with_the_query_in_place_of_an_unknown_question(recorder, captured):
    run = PipelineRun(recorder, "a")
    retrieves(run)
    run.end("an answer")
    run.end("another one")
    assert (captured.run.question, captured.run.answer, len(captured.run.steps)) == ("hop", "an answer", 1)


def test_id_that_is_given_twice_names_two_runs(recorder, captured):
    for id in "ab":
        run = PipelineRun(recorder, id)
        run.identify({"ragguard_run_id": "mine"})
        retrieves(run)
        run.end("an answer")
    assert [run.id for run in captured.runs] == ["a", "b"]
    assert {run.metadata["ragguard.caller_id"] for run in captured.runs} == {"mine"}


def test_run_of_the_user_is_joined_and_gets_the_answer(recorder, captured):
    with RunHandle(recorder, "who?") as handle:
        run = PipelineRun(recorder, "a")
        run.identify({})
        retrieves(run)
        run.end("an answer", "error", ValueError("noted by the user's own block"))
    assert (captured.run.id, captured.run.status, captured.run.answer) == (handle.id, "ok", "an answer")


def test_cancelled_run_that_waits_for_a_person_is_interrupted(recorder, captured):
    run = PipelineRun(recorder, "a")
    retrieves(run)
    run.waits = True
    run.end(None, "cancelled")
    assert captured.run.status == "interrupted"


def test_references_that_cannot_be_right_cost_only_themselves(recorder):
    run = PipelineRun(recorder, "a")
    run.refer(12, "metadata")
    assert (run.references, recorder.faults.count) == (None, 1)


ITEMS = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]


def result_of_mcp_1(*blocks, structured=None, error=False):
    content = [SimpleNamespace(type="text", text=block) for block in blocks]
    return SimpleNamespace(content=content, structuredContent=structured, isError=error)


def result_of_mcp_2(*blocks, structured=None, error=False):
    mcp_types = pytest.importorskip("mcp_types")  # not in the environments of the lowest versions
    content = [mcp_types.TextContent(type="text", text=block) for block in blocks]
    return mcp_types.CallToolResult(content=content, structured_content=structured, is_error=error)


both_versions_of_mcp = pytest.mark.parametrize(
    "made", [result_of_mcp_1, result_of_mcp_2], ids=["mcp 1", "mcp 2"]
)


def split(output):
    return [(one.id, one.text) for one in ToolResult.of(output, declared=True).split(json_items)]


@both_versions_of_mcp
@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        ([json.dumps(item) for item in ITEMS], None),
        ([json.dumps(ITEMS)], None),
        (["no JSON at all"], {"result": ITEMS}),
        ([], {"result": ITEMS}),
    ],
    ids=["a block an item", "one block", "structured content", "no blocks"],
)
def test_mcp_result_is_one_passage_an_item(made, blocks, structured):
    assert split(made(*blocks, structured=structured)) == [("a", "one"), ("b", "two")]


@both_versions_of_mcp
@pytest.mark.parametrize("structured", [None, {"result": []}])
def test_empty_mcp_result_has_no_passages(made, structured):
    assert split(made(structured=structured)) == []


@both_versions_of_mcp
def test_mcp_result_that_says_error_is_one(made):
    assert ToolResult.of(made("no such index", error=True), declared=True).error == "no such index"


@pytest.mark.parametrize(
    "output", [{"hits": ITEMS}, ITEMS, json.dumps(ITEMS)], ids=["mapping", "list", "text"]
)
def test_data_are_one_passage_an_item(output):
    assert split(output) == [("a", "one"), ("b", "two")]


@pytest.mark.parametrize(
    ("result", "known", "expected"),
    [
        (ToolResult(documents=["a document"]), False, True),
        (ToolResult(documents=[]), False, True),
        (ToolResult(documents=[], any_list=True), False, False),
        (ToolResult(documents=[], any_list=True), True, True),
        (ToolResult(error="down"), False, False),
        (ToolResult(error="down"), True, True),
        (ToolResult(["a text"]), True, False),
    ],
)
def test_empty_lists_and_errors_are_retrievals_of_a_tool_that_gives_documents(
    recorder, result, known, expected
):
    recorder.here.calls.retrieving.update(["search"] if known else [])
    end = {"begin": lambda: "s", "end": lambda found, unpack: None}
    assert tool_ended(recorder, "r", "search", result, **end) == expected
