"""A LlamaIndex agent that hops twice, watched: which hop paid, and which passage misled it?

    pip install 'ragguard[llama-index]'
    python examples/llamaindex_agent.py

Reader and passages come from the small made-up world that ships with ragguard: no GPU, no key, no download.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ragguard import RagGuard, connect, world
from ragguard.report.hops import print_hops
from ragguard_llamaindex import instrument, uninstrument

CASE = world.cases(1, hops=2)[0]


class WorldRetriever(BaseRetriever):
    """Searches that world; a fifth of its finds are chance ones, as in life."""

    search = world.retriever(k=4, noise=0.2)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self.search(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(id_=p.id, text=p.text), score=p.score) for p in found]


async def search(query: str) -> str:
    """Finds passages."""
    return "\n".join(f"- {found.text}" for found in await WorldRetriever().aretrieve(query))


class Nano(MockFunctionCallingLLM):
    """Plans by the book, one search a hop, and reads what it found with the small model that lives there."""

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        read = [message.content or "" for message in messages if message.role == MessageRole.TOOL]
        if len(read) < CASE.hops:
            query = {"query": CASE.sub_questions[len(read)]}
            block = ToolCallBlock(tool_call_id=f"hop {len(read)}", tool_name="search", tool_kwargs=query)
            return ChatResponse(message=ChatMessage(role="assistant", blocks=[block]))
        prompt = "\n".join([*read, f"Question: {CASE.question}", "Answer:"])
        samples = await connect("nano").sample([prompt], n=1, max_tokens=8, temperature=0)
        return ChatResponse(message=ChatMessage(role="assistant", content=samples[0][0].text))


async def main() -> None:
    rg = RagGuard(engine="nano", store=None)
    instrument(rg)
    agent = FunctionAgent(tools=[search], llm=Nano(), streaming=False)
    async with rg.run(CASE.question, references=CASE.references):
        print(CASE.question, "→", await agent.run(user_msg=CASE.question))
    uninstrument()
    await rg.aflush(timeout=300)
    print_hops(rg)
    rg.close()


if __name__ == "__main__":
    asyncio.run(main())
