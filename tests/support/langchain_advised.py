"""An agent of LangChain that searches nano's world, and models that make its searches."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import tool
from support.advised import ANSWER, finds
from support.langchain_parts import Says, call

from ragguard_langchain import RagGuardCallback

SYNC_AND_ASYNC = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Searches nano's world."""
    found = [Document(one.text, id=one.id) for one in finds(query)]
    return "\n".join(one.page_content for one in found), found


class Searches(Says):
    """A model that calls the next of its turns as long as it is offered a tool, then answers.

    `heard` has what it was told each time: the names of the tools, and the system message.
    """

    heard: list[tuple[list[str], str]]

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, messages: Any, *args: Any, tools: Any = (), **kwargs: Any) -> Any:
        system = "\n".join(one.text for one in messages if isinstance(one, SystemMessage))
        self.heard.append(([one.name for one in tools], system))
        if not tools:
            self._next = len(self.turns) - 1
        return super()._generate(messages, *args, **kwargs)

    def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        yield from ()
        raise NotImplementedError


def searching(*queries, answer=ANSWER, name="search"):
    """A model that makes these searches one after the other; several in a tuple are made at once."""
    turns = [
        [call(name, query=one) for one in (query if isinstance(query, tuple) else (query,))]
        for query in queries
    ]
    return Searches(turns=[*turns, answer], heard=[], disable_streaming=True)


async def go(built, given, config, mode="invoke"):
    """Calls an agent, and returns its messages."""
    if mode == "invoke":
        done = built.invoke(given, config)
    elif mode == "ainvoke":
        done = await built.ainvoke(given, config)
    elif mode == "stream":
        *_, done = built.stream(given, config, stream_mode="values")
    else:
        done = [state async for state in built.astream(given, config, stream_mode="values")][-1]
    return done["messages"]


def searches(messages):
    return [one for one in messages if isinstance(one, ToolMessage)]


def watching(rg):
    return {"callbacks": [RagGuardCallback(rg)]}
