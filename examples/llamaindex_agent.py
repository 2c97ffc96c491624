"""A LlamaIndex agent with two hops, captured and scored: which hop paid, and which passage misled it?

    pip install './ragguard[llama-index]'
    python ragguard/examples/llamaindex_agent.py

Model and passages come from nano's made-up world, which ships with ragguard: no GPU, no key, no download.
"""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool

from ragguard import RagGuard, connect, print_hops, world
from ragguard_llamaindex import instrument

NANO, CASE, SEARCH = connect("nano"), world.cases(4, hops=2)[3], world.retriever(k=4, noise=0.2)


class WorldRetriever(BaseRetriever):
    """Searches nano's world. A fifth of the passages that it returns are random ones."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = SEARCH(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(id_=p.id, text=p.text), score=p.score) for p in found]


class Nano(MockFunctionCallingLLM):
    """Follows a fixed plan, one search a hop, and answers with nano from the passages."""

    async def achat(self, messages: list[ChatMessage], **kwargs: Any) -> ChatResponse:
        read = [str(message.content) for message in messages if message.role == MessageRole.TOOL]
        if len(read) < CASE.hops:
            hop = {"query": CASE.sub_questions[len(read)]}
            said = ToolCallBlock(tool_call_id=f"hop {len(read)}", tool_name="search", tool_kwargs=hop)
        else:
            found = "".join(read).strip().replace("\n\n", "\n- ")
            prompt = f"- {found}\nQuestion: {CASE.question}\nAnswer:"
            said = TextBlock(text=(await NANO.sample([prompt], n=1, max_tokens=8, temperature=0))[0][0].text)
        return ChatResponse(message=ChatMessage(role="assistant", blocks=[said]))


async def main() -> None:
    search = RetrieverTool.from_defaults(WorldRetriever(), name="search", description="Finds passages.")
    agent = FunctionAgent(tools=[search], llm=Nano(), streaming=False)
    async with RagGuard(engine=NANO, store=None) as rg:
        instrument(rg)
        async with rg.run(CASE.question, references=CASE.references):
            print(CASE.question, "→", await agent.run(user_msg=CASE.question))
        await rg.aflush(timeout=300)
        print_hops(rg)


asyncio.run(main())
