"""A LangChain agent with a guard, which drops misleading passages before the model reads them.

    pip install './ragguard[langchain-agents]' && python ragguard/examples/langchain_guard.py

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

from ragguard import DistractorGuard, RagGuard, connect, print_hops, world
from ragguard.guard import TopUtility, UtilityThreshold
from ragguard_langchain import GuardMiddleware, RagGuardCallback

NANO, CASES, SEARCH = connect("nano"), world.cases(2, hops=2), world.retriever(k=6, noise=0.2)
HOPS = {case.question: case.sub_questions for case in CASES}


@tool(response_format="content_and_artifact")
def search(query: str) -> tuple[str, list[Document]]:
    """Finds passages. The guard judges the documents of the artifact, not the text."""
    found = [Document(p.text, id=p.id, metadata={"score": p.score}) for p in SEARCH(query)]
    return "\n".join(f"- {document.page_content}" for document in found), found


class Nano(BaseChatModel):
    """Follows a fixed plan, one search a hop, and answers with nano from the passages that the guard kept."""

    _llm_type = "nano"

    def bind_tools(self, tools: object, **kwargs: object) -> "Nano":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        question = str(messages[0].content)
        found = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
        if hops := HOPS[question][len(found) :]:
            message = AIMessage("", tool_calls=[ToolCall(name="search", args={"query": hops[0]}, id=hops[0])])
        else:
            prompt = "\n".join([*found, f"Question: {question}", "Answer:"])
            samples = asyncio.run(NANO.sample([prompt], n=1, max_tokens=8, temperature=0))
            message = AIMessage(samples[0][0].text)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        message = self._generate(*args).generations[0].message
        for letter in message.content or [""]:
            yield ChatGenerationChunk(message=AIMessageChunk(letter, tool_calls=message.tool_calls))


rg = RagGuard(engine=NANO, store=None, references={case.question: case.references for case in CASES}.get)
guard = DistractorGuard(rg.engine, policies=[UtilityThreshold(-0.2), TopUtility(4)], budget_ms=10_000)
agent = create_agent(Nano(), [search], middleware=[GuardMiddleware(guard)])
for question in HOPS:
    agent.invoke({"messages": [("user", question)]}, {"callbacks": [RagGuardCallback(rg)]})
rg.flush(timeout=300)
print_hops(rg)
rg.close()
