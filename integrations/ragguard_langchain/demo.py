"""The LangGraph part of `ragguard demo`: an agent that hops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from ragguard.guard import DistractorGuard
from ragguard.records import Passage
from ragguard_langchain.middleware import GuardMiddleware

Plan = Callable[[str], Sequence[str]]
Search = Callable[[str], Sequence[Passage]]
Read = Callable[[str, Sequence[str]], str]


class HoppingChat(BaseChatModel):
    """A chat model that asks for the searches of `plan`, one a turn, and then lets `read` answer from the finds."""

    plan: Plan
    read: Read

    @property
    def _llm_type(self) -> str:
        return "ragguard-demo"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Returns the model itself, which needs no description of its one tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        question = str(messages[0].content)
        found = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        if hops := self.plan(question)[len(found) :]:
            call = ToolCall(name="search", args={"query": hops[0]}, id=f"hop-{len(found)}")
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage(self.read(question, [line for text in found for line in text.splitlines()]))
        return ChatResult(generations=[ChatGeneration(message=message)])


def agent(plan: Plan, search: Search, read: Read, guard: DistractorGuard | None) -> Callable[[str], str]:
    """Returns a LangGraph agent of LangChain's `create_agent`, with the guard as its middleware if there is one."""

    @tool("search", response_format="content_and_artifact")
    def searching(query: str) -> tuple[str, list[Document]]:
        """Returns the passages that the search finds."""
        found = _documents(search(query))
        return "\n".join(document.page_content for document in found), found

    middleware = [GuardMiddleware(guard, render="\n".join)] if guard else []
    graph = create_agent(HoppingChat(plan=plan, read=read), [searching], middleware=middleware)

    def ask(question: str) -> str:
        done = graph.invoke({"messages": [("user", question)]})
        return str(done["messages"][-1].content)

    return ask


def _documents(passages: Sequence[Passage]) -> list[Document]:
    return [Document(one.text, id=one.id, metadata={"score": one.score}) for one in passages]
