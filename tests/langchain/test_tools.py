"""Tools that retrieve: declared or with documents as artifacts, and those that do not."""

from __future__ import annotations

import threading

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.types import Command
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import ListRetriever, call, documents

from ragguard.capture.splitters import paragraphs
from ragguard_langchain import RagGuardCallback


def only_step(captured):
    (step,) = captured.run.steps
    return step


@tool
def as_text(query: str) -> str:
    """Searches; gives one string."""
    return "\n\n".join(d.page_content for d in documents("text", 3, query))


@tool(response_format="content_and_artifact")
def as_artifact(query: str, top: int = 2) -> tuple[str, list]:
    """Searches without a retriever; gives documents beside its text."""
    found = documents("artifact", top, query)
    return "see artifact", found


@tool(response_format="content_and_artifact")
def reranked(query: str) -> tuple[str, list]:
    """Retrieves three and keeps the best one."""
    found = ListRetriever(count=3).invoke(query)[:1]
    return found[0].page_content, found


@tool
def in_state(query: str) -> Command:
    """Searches, and writes to the graph's state."""
    found = documents("state", 2, query)
    message = ToolMessage("found", tool_call_id=f"call-in_state-{query}", artifact=found)
    return Command(update={"messages": [message]})


def with_tool(one, rg, tools=None, **arguments):
    built = agent(call(one.name, **(arguments or {"query": "hop"})), ANSWER, tools=[one])
    return built.invoke(asked(), {"callbacks": [RagGuardCallback(rg, tools=tools)]})


def test_a_splitter_of_ones_own_runs_later_and_may_fail(captured, rg, caplog):
    calls = []

    def split(text):
        calls.append(threading.current_thread())
        raise ValueError("odd text")

    with_tool(as_text, rg, {"as_text": split})
    assert calls == []
    step = only_step(captured)
    assert len(calls) == 1
    assert (len(step.passages), step.metadata["ragguard.split_error"]) == (1, "ValueError: odd text")
    assert "what 'as_text' returned could not be taken apart" in caplog.text


def test_documents_as_an_artifact_are_a_step(captured, rg):
    with_tool(as_artifact, rg)
    step = only_step(captured)
    assert (step.query, step.tool) == ("hop", "as_artifact")
    assert [one.id for one in step.candidates] == ["artifact-0", "artifact-1"]
    assert (
        step.passages == []
    )  # the message's content, which is all that the model is given, has none of them
    assert step.metadata["tool_call_id"] == "call-as_artifact-hop"


def test_documents_in_a_command_are_a_step(captured, rg):
    with_tool(in_state, rg)
    assert (only_step(captured).tool, len(only_step(captured).candidates)) == ("in_state", 2)


def test_a_declared_tool_with_artifacts_needs_no_splitter_to_run(captured, rg):
    with_tool(as_artifact, rg, {"as_artifact": lambda text: 1 / 0})
    assert [one.id for one in only_step(captured).candidates] == ["artifact-0", "artifact-1"]


def test_a_retriever_in_a_declared_tool_is_a_part(captured, rg):
    with_tool(reranked, rg, {"reranked": paragraphs})
    step = only_step(captured)
    assert (step.query, len(step.passages)) == ("hop", 1)
    assert [len(sub.passages) for sub in step.sub_steps] == [3]


def test_a_tool_by_hand_is_a_run(captured, rg):
    as_text.invoke({"query": "hop"}, {"callbacks": [RagGuardCallback(rg, tools={"as_text": paragraphs})]})
    assert (captured.run.question, captured.run.status, len(only_step(captured).passages)) == ("hop", "ok", 3)


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({"query": "q", "top": 3}, "q"),
        ({"search_terms": "q", "top": 3}, "q"),
        ({"subject": "s", "relation": "r"}, "{'subject': 's', 'relation': 'r'}"),
    ],
)
def test_the_query_is_what_the_agent_wrote(captured, rg, arguments, query):
    types = {
        key: {"type": "string" if isinstance(value, str) else "integer"} for key, value in arguments.items()
    }
    built = StructuredTool.from_function(
        lambda **given: "a", name="odd", description="x", args_schema={"type": "object", "properties": types}
    )
    built.invoke(arguments, {"callbacks": [RagGuardCallback(rg, tools={"odd": paragraphs})]})
    assert only_step(captured).query == query


RESULTS = {"query": "who", "results": [{"title": "A", "url": "a", "content": "text of a"}]}


def web_search(query: str) -> dict:
    """Searches, and gives JSON as search engines do."""
    return RESULTS


def to_do(query: str) -> list:
    """Gives something else in JSON."""
    return [{"done": False, "task": "buy milk"}]


@pytest.mark.parametrize(("tools", "found"), [(None, []), ("auto", [["a"]]), (["web_search"], [["a"]])])
def test_a_search_result_is_a_retrieval_where_that_was_asked_for(rg, captured, tools, found, caplog):
    turns = call("web_search", query="who"), call("to_do", query="what"), ANSWER
    handler = RagGuardCallback(rg, tools=tools)
    caplog.set_level("INFO")
    for _ in range(2):
        agent(*turns, tools=[tool(web_search), tool(to_do)]).invoke(asked(), {"callbacks": [handler]})
    steps = [step for run in captured.runs for step in run.steps]
    assert [[one.id for one in step.passages] for step in steps] == found * 2
    assert {step.query for step in steps} <= {"who"}
    assert caplog.text.count("'web_search' gave") <= 1
    assert "'to_do' gave" not in caplog.text
