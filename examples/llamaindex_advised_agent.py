"""A LlamaIndex agent that plans six searches. It stops and answers as soon as advice says that it has read enough.

    pip install './ragguard[llama-index]' && python ragguard/examples/llamaindex_advised_agent.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

import asyncio
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool

from ragguard import RagGuard, connect, print_hops, world
from ragguard_llamaindex import AdvisedFunctionAgent, instrument

NANO, CASE, SEARCH = connect("nano"), world.cases(7, hops=2)[6], world.retriever(k=4)
PLAN = [*CASE.sub_questions, CASE.question] * 2


class WorldRetriever(BaseRetriever):
    """Searches nano's world."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = SEARCH(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(id_=p.id, text=p.text), score=p.score) for p in found]


class Nano(MockFunctionCallingLLM):
    """Searches as long as it has a search tool, then answers with nano."""

    async def achat(self, messages: list[ChatMessage], tools: Any = (), **kwargs: Any) -> ChatResponse:
        read = [str(message.content) for message in messages if message.role == MessageRole.TOOL]
        if tools and (query := PLAN[len(read) :][:1]):
            said = ToolCallBlock(
                tool_call_id=f"{len(read)}", tool_name="search", tool_kwargs={"query": query[0]}
            )
        else:
            found = "".join(read).strip().replace("\n\n", "\n- ")
            prompt = f"- {found}\nQuestion: {CASE.question}\nAnswer:"
            said = TextBlock(text=(await NANO.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text)
        return ChatResponse(message=ChatMessage(role="assistant", blocks=[said]))


async def main() -> None:
    search = RetrieverTool.from_defaults(WorldRetriever(), name="search", description="Finds passages.")
    agent = AdvisedFunctionAgent(tools=[search], llm=Nano(), streaming=False, max_hops=6, budget_ms=60_000)
    async with RagGuard(engine=NANO, store=None) as rg:
        instrument(rg)
        print(CASE.question, "→", await agent.run(user_msg=CASE.question))
        await rg.aflush(timeout=300)
        print_hops(rg)


asyncio.run(main())
