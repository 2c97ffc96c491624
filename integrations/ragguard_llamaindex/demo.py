"""The LlamaIndex part of `ragguard demo`: an agent that hops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import RetrieverTool

from ragguard.guard import DistractorGuard
from ragguard.records import Passage
from ragguard_llamaindex.guards import GuardedRetriever

Plan = Callable[[str], Sequence[str]]
Search = Callable[[str], Sequence[Passage]]
Read = Callable[[str, Sequence[str]], str]


class HoppingLLM(CustomLLM, FunctionCallingLLM):
    """A chat model that asks for the searches of `plan`, one a turn, and then lets `read` answer from the finds."""

    plan: Plan
    read: Read

    @property
    def metadata(self) -> LLMMetadata:
        """The model's properties, as LlamaIndex wants them."""
        return LLMMetadata(model_name="ragguard-demo", is_function_calling_model=True)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answers a bare prompt."""
        return CompletionResponse(text=self.read(prompt, []))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Yields the whole completion as one piece."""
        text = self.complete(prompt).text
        yield CompletionResponse(text=text, delta=text)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Returns the next search, or the answer."""
        question = next(str(one.content) for one in messages if one.role == MessageRole.USER)
        found = [str(message.content) for message in messages if message.role == MessageRole.TOOL]
        block: ToolCallBlock | TextBlock
        if hops := self.plan(question)[len(found) :]:
            wanted = {"query": hops[0]}
            block = ToolCallBlock(tool_call_id=f"hop-{len(found)}", tool_name="search", tool_kwargs=wanted)
        else:
            lines = [line for text in found for line in text.splitlines() if line.strip()]
            block = TextBlock(text=await asyncio.to_thread(self.read, question, lines))
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, blocks=[block]))

    def _prepare_chat_with_tools(
        self,
        tools: Any,
        user_msg: Any = None,
        chat_history: Any = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        return {"messages": [*(chat_history or []), *([user_msg] if user_msg else [])]}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Returns the search that the model asked for, in a list; an empty list where it asked for none."""
        return [
            ToolSelection(
                tool_id=str(block.tool_call_id),
                tool_name=block.tool_name,
                tool_kwargs=dict(block.tool_kwargs),
            )
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock) and isinstance(block.tool_kwargs, dict)
        ]


class _Searching(BaseRetriever):
    def __init__(self, search: Search) -> None:
        self._search = search
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._search(query_bundle.query_str))


def agent(plan: Plan, search: Search, read: Read, guard: DistractorGuard | None) -> Callable[[str], str]:
    """Returns a LlamaIndex function agent whose retriever tool has the guard around its retriever, if there is one."""
    retriever = GuardedRetriever(_Searching(search), guard) if guard else _Searching(search)
    searching = RetrieverTool.from_defaults(retriever, name="search", description="Finds passages.")
    hopping = FunctionAgent(tools=[searching], llm=HoppingLLM(plan=plan, read=read), streaming=False)

    async def answered(question: str) -> str:
        return str(await hopping.run(user_msg=question))

    return lambda question: asyncio.run(answered(question))


def _nodes(passages: Sequence[Passage]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(id_=one.id, text=one.text), score=one.score) for one in passages]
