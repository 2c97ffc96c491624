"""Which tool results GuardMiddleware judges, what it says of those that it does not understand, which text of a
document is judged, and the settings of the guard's classes."""

from __future__ import annotations

import copy

import pytest
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.tools import create_retriever_tool, tool
from langgraph.types import Command
from pydantic import ValidationError
from support.guards import guarding
from support.langchain_agents import ANSWER, agent, asked
from support.langchain_parts import ListRetriever, call, documents

from ragguard_langchain import DistractorFilter, GuardedRetriever, GuardMiddleware

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


async def results(given, /, *, mode="sync", config=None, guard=None, name="search", **settings):
    """What the model reads of one call of a tool."""
    guard = guard or guarding()
    built = agent(call(name, query="x"), ANSWER, tools=given, middleware=[GuardMiddleware(guard, **settings)])
    state = built.invoke(asked(), config) if mode == "sync" else await built.ainvoke(asked(), config)
    return [one for one in state["messages"] if isinstance(one, ToolMessage)]


def not_understood(caplog):
    return [record.message for record in caplog.records if "found no passages" in record.message]


@MODES
@pytest.mark.parametrize("response_format", ["content", "content_and_artifact"])
@pytest.mark.parametrize(
    ("prompt", "settings", "expected"),
    [
        (None, {}, "shelf 0 about x\n\nshelf 2 about x"),
        ("Source {source}: {page_content}", {"render": " / ".join}, "shelf 0 about x / shelf 2 about x"),
    ],
)
async def test_create_retriever_tool_in_both_formats(
    captured, config, caplog, mode, response_format, prompt, settings, expected
):
    made = create_retriever_tool(
        ListRetriever(count=4), "search", "Searches.", response_format=response_format,
        document_prompt=None if prompt is None else PromptTemplate.from_template(prompt),
    )  # fmt: skip
    (message,) = await results([made], mode=mode, config=config, **settings)
    assert message.content == expected
    if response_format == "content_and_artifact":
        assert [one.id for one in message.artifact] == ["shelf-0", "shelf-2"]
    (step,) = captured.run.steps
    assert [passage.id for passage in step.passages] == ["shelf-0", "shelf-2"]
    assert [(drop.position, drop.passage.id) for drop in step.decision.dropped] == [
        (2, "shelf-1"),
        (4, "shelf-3"),
    ]
    assert not_understood(caplog) == []


async def test_retrieval_of_an_agent_inside_a_tool_is_not_guarded_by_the_outer_one():
    inner = agent(call("look", query="x"), "shelf 1 about x, they say", tools=[
        create_retriever_tool(ListRetriever(count=4), "look", "Looks.")
    ])  # fmt: skip

    @tool
    def search(query: str) -> str:
        """Asks an agent."""
        return inner.invoke(asked())["messages"][-1].content

    guard = guarding()
    (message,) = await results([search], guard=guard)
    assert message.content == "shelf 1 about x, they say"


@MODES
async def test_tool_result_that_is_not_understood_is_logged_once_a_tool(caplog, mode):
    @tool
    def search(query: str) -> str:
        """Searches by other means."""
        return "shelf 1 about x\n\nshelf 2 about x"

    guard = guarding()
    for _ in range(2):
        (message,) = await results([search], mode=mode, guard=guard)
    assert message.content == "shelf 1 about x\n\nshelf 2 about x"
    (said,) = not_understood(caplog)
    assert "'search'" in said
    assert "tools={'search': paragraphs}" in said


@pytest.mark.parametrize(
    ("splitter", "why"),
    [(lambda text: 1 / 0, "ZeroDivisionError"), (lambda text: [], "no passages in its text")],
)
async def test_a_splitter_that_fails_or_finds_nothing_is_said(caplog, splitter, why):
    @tool
    def search(query: str) -> str:
        """Searches."""
        return "shelf 1 about x\n\nshelf 2 about x"

    guard = guarding()
    (message,) = await results([search], guard=guard, tools={"search": splitter})
    assert message.content == "shelf 1 about x\n\nshelf 2 about x"
    (said,) = not_understood(caplog)
    assert why in said


async def test_an_artifact_that_is_no_document_is_said(caplog):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, dict[str, int]]:
        """Searches."""
        return "three hits", {"hits": 3}

    await results([search])
    assert "its artifact has no documents" in not_understood(caplog)[0]


async def test_nothing_is_said_of_what_is_clear(caplog):
    """A tool that is declared not to retrieve, one that failed, one that found nothing, a command that moves on."""

    @tool
    def add(query: str) -> str:
        """Adds."""
        return "2"

    @tool
    def fails(query: str) -> Command:
        """Fails."""
        return Command(update={"messages": [ToolMessage("no", tool_call_id="call-fails-x", status="error")]})

    @tool
    def empty(query: str) -> str:
        """Finds nothing."""
        return ""

    guard = guarding()
    for one in (add, fails, empty):
        await results([one], guard=guard, name=one.name, tools={"add": None})
    assert not_understood(caplog) == []


def bare(artifact):
    """The ids that an artifact holds, in its own form."""
    if isinstance(artifact, dict):
        return {name: bare(value) for name, value in artifact.items()}
    if isinstance(artifact, Document):
        return artifact.id
    return [bare(one) for one in artifact] if isinstance(artifact, (list, tuple)) else artifact


@MODES
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda found: [(one, 0.5) for one in found], [["shelf-0", 0.5], ["shelf-2", 0.5]]),
        (
            lambda found: {"documents": found, "took": 3},
            {"documents": [f"shelf-{n}" for n in range(4)], "took": 3},
        ),
        (lambda found: tuple(found), ["shelf-0", "shelf-2"]),
    ],
    ids=["pairs", "mapping", "tuple"],
)
async def test_artifacts_in_every_form_that_capture_recognises(captured, config, mode, form, expected):
    @tool(response_format="content_and_artifact")
    def search(query: str) -> tuple[str, object]:
        """Searches."""
        found = documents("shelf", 4, query)
        return "\n\n".join(one.page_content for one in found), form(found)

    (message,) = await results([search], mode=mode, config=config)
    assert message.content == "shelf 0 about x\n\nshelf 2 about x"
    assert bare(message.artifact) == expected
    (step,) = captured.run.steps
    assert [drop.passage.id for drop in step.decision.dropped] == ["shelf-1", "shelf-3"]


@MODES
async def test_a_deep_copy_of_a_guarded_retriever_guards(mode):
    """Frameworks copy what they are configured with."""
    mine = guarding()
    guarded = copy.deepcopy(GuardedRetriever(ListRetriever(count=4), mine))
    found = guarded.invoke("x") if mode == "sync" else await guarded.ainvoke("x")
    assert [one.id for one in found] == ["shelf-0", "shelf-2"]
    assert guarded.guard is mine
    assert GuardedRetriever(ListRetriever(count=4), mine).model_copy(deep=True).guard is mine


@pytest.fixture
def guard():
    return guarding()


def test_unknown_setting_is_refused_by_name(guard):
    with pytest.raises(ValidationError, match=r"GuardedRetriever\ntextof"):
        GuardedRetriever(ListRetriever(), guard, textof=str)
    with pytest.raises(ValidationError, match=r"DistractorFilter\ntextof"):
        DistractorFilter(guard, textof=str)
