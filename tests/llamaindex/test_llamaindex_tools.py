"""What counts as a retrieval of a tool, and what of it the model got."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.schema import TextNode
from llama_index.core.tools import FunctionTool
from support.captured import ids
from support.llamaindex_parts import QUESTION, ListRetriever, ToolCallingModel, call, nodes, scripted

from ragguard.capture.splitters import paragraphs
from ragguard_llamaindex import instrument


def texts(passages):
    return [passage.text for passage in passages]


async def asked(*functions, turns=1, name=None):
    """An agent that calls the first function, once or several times, and then answers."""
    tools = [
        one if isinstance(one, FunctionTool) else FunctionTool.from_defaults(async_fn=one)
        for one in functions
    ]
    name = name or tools[0].metadata.name
    script = [call(name, place=f"Oslo {n}" if n else "Oslo") for n in range(turns)]
    await FunctionAgent(tools=tools, llm=scripted(*script, "Ada Berg")).run(user_msg=QUESTION)


@pytest.fixture
def declare(recorder):
    def declared(**options):
        instrument(SimpleNamespace(recorder=recorder), **options)

    return declared


@pytest.mark.parametrize(
    ("gives", "found"),
    [
        (lambda: nodes("a", 2), [("a-0", 1.0), ("a-1", 0.9)]),
        (lambda: [one.node for one in nodes("a", 2)], [("a-0", None), ("a-1", None)]),
        (lambda: [(one.node, 0.5) for one in nodes("a", 2)], [("a-0", 0.5), ("a-1", 0.5)]),
        (lambda: {"documents": [one.node for one in nodes("a", 1)]}, [("a-0", None)]),
        (lambda: {"nodes": nodes("a", 1), "took": 3}, [("a-0", 1.0)]),
        (lambda: {"documents": []}, []),
    ],
    ids=["nodes with scores", "nodes", "pairs", "documents", "nodes by name", "nothing by name"],
)
async def test_documents_are_recognised_without_a_word(recorder, captured, gives, found):
    async def lookup(place: str):
        """Asks a database by itself."""
        return gives()

    await asked(lookup)
    (step,) = captured.run.steps
    assert (step.query, step.tool, step.status) == ("Oslo", "lookup", "ok")
    assert [(one.id, one.score) for one in step.passages] == found


async def test_nodes_without_scores_are_shown_bare_to_a_model(recorder, captured):
    async def lookup(place: str):
        """FunctionTool shows the text of plain nodes, without their metadata."""
        return [TextNode(text="the text", metadata={"title": "a title"})]

    await asked(lookup)
    assert texts(captured.run.steps[0].passages) == ["the text"]


async def test_tool_that_has_given_nodes_before_is_a_step_where_it_gives_none_or_fails(recorder, captured):
    found = iter([nodes("a", 1), [], None])

    async def lookup(place: str):
        """Finds something, then nothing, then fails."""
        if (given := next(found)) is None:
            raise ConnectionError("no database")
        return given

    await asked(lookup, turns=3)
    assert [len(step.passages) for step in captured.run.steps] == [1, 0, 0]
    assert captured.run.steps[2].error == "ConnectionError: no database"


@pytest.mark.parametrize("gives", [[], ["a text"], {"rows": []}, {"results": []}, "a text", 3, None, [1, 2]])
async def test_undeclared_tool_with_other_results_is_no_retrieval(recorder, captured, gives):
    async def lookup(place: str):
        """Counts tickets, say."""
        return gives

    await asked(lookup)
    assert captured.events == []
    assert "instead of retrievals: tool 'lookup'." in recorder.here.calls.what_to_do()


async def test_an_agent_whose_first_model_call_fails_was_seen(recorder):
    """flush() then says what failed, and not that the RagGuard is not attached."""

    async def lookup(place: str):
        """Is never called."""

    def fails(messages, tools):
        raise ConnectionError("no server")

    agent = FunctionAgent(tools=[FunctionTool.from_defaults(async_fn=lookup)], llm=ToolCallingModel(fails))
    with pytest.raises(Exception, match="no server"):
        await agent.run(user_msg=QUESTION)
    assert "instead of retrievals: failed call 'FunctionAgent" in recorder.here.calls.what_to_do()


async def test_retrievers_inside_a_declared_tool_are_its_parts(declare, captured):
    async def lookup(place: str) -> str:
        """Gives text."""
        return "\n\n".join(one.node.text for one in await ListRetriever().aretrieve(place))

    declare(tools={"lookup": paragraphs})
    await asked(lookup)
    (step,) = captured.run.steps
    assert texts(step.passages) == ["shelf 0 about Oslo", "shelf 1 about Oslo"]
    assert [len(part.passages) for part in step.sub_steps] == [2]


async def test_a_search_result_is_a_retrieval_with_auto(captured, declare):
    mcp_types = pytest.importorskip("mcp_types")

    async def web_search(place: str) -> object:
        """Searches, and gives what an MCP client gives."""
        blocks = [
            mcp_types.TextContent(type="text", text=json.dumps({"id": one, "text": f"text of {one}"}))
            for one in "ab"
        ]
        return mcp_types.CallToolResult(content=blocks)

    async def to_do(place: str) -> str:
        """Gives something else in JSON."""
        return json.dumps([{"done": False, "task": "buy milk"}])

    declare(tools="auto")
    await asked(web_search)
    await asked(to_do)
    (step,) = [step for run in captured.runs for step in run.steps]
    assert (step.query, step.tool, ids(step.passages)) == ("Oslo", "web_search", ["a", "b"])
