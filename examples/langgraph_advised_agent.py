"""A LangGraph agent that plans six searches. It stops and answers as soon as advice says that it has read enough.

    pip install './ragguard[langchain-agents]' && python ragguard/examples/langgraph_advised_agent.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from ragguard import RagGuard, connect, print_hops, world
from ragguard_langchain import AdviceMiddleware, instrument

NANO, CASE, SEARCH = connect("nano"), world.cases(7, hops=2)[6], world.retriever(k=4)
PLAN = [*CASE.sub_questions, CASE.question] * 2


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Finds passages. ragguard records the documents of the artifact, not the text."""
    found = [Document(p.text, id=p.id, metadata={"score": p.score}) for p in SEARCH(query)]
    return "\n".join(f"- {document.page_content}" for document in found), found


class Nano(BaseChatModel):
    """Searches as long as it has a search tool, then answers with nano."""

    _llm_type = "nano"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(
        self, messages: list[BaseMessage], *args: Any, tools: Any = (), **kwargs: Any
    ) -> ChatResult:
        found = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        if tools and (query := PLAN[len(found) :][:1]):
            call = ToolCall(name="search", args={"query": query[0]}, id=f"{len(found)}")
            message = AIMessage("", tool_calls=[call])
        else:
            prompt = "\n".join([*found, f"Question: {CASE.question}", "Answer:"])
            samples = asyncio.run(NANO.sample([prompt], n=1, max_tokens=8, temperature=0))
            message = AIMessage(samples[0][0].text)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        message = self._generate(messages, **kwargs).generations[0].message
        for letter in message.content or [""]:
            yield ChatGenerationChunk(message=AIMessageChunk(letter, tool_calls=message.tool_calls))


with RagGuard(engine=NANO, store=None) as rg:
    instrument(rg)
    agent = create_agent(Nano(), [search], middleware=[AdviceMiddleware(max_hops=6, budget_ms=60_000)])
    done = agent.invoke({"messages": [("user", CASE.question)]})
    print(CASE.question, "→", done["messages"][-1].content)
    rg.flush(timeout=300)
    print_hops(rg)
