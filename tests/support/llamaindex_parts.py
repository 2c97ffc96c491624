"""Real parts of LlamaIndex with scripted contents: retrievers over a fixed shelf, models told what to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseGen,
    ToolCallBlock,
)
from llama_index.core.llms import CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import PrivateAttr

QUESTION = "Who founded the firm based in Oslo?"


def nodes(name: str, count: int = 2, query: str = "") -> list[NodeWithScore]:
    """Nodes `name-0`, `name-1` … with falling scores, and some metadata that no model is shown."""
    return [
        NodeWithScore(
            node=TextNode(
                id_=f"{name}-{n}",
                text=f"{name} {n} about {query}",
                metadata={"source": name, "rank": n},
                excluded_llm_metadata_keys=["source", "rank"],
            ),
            score=1.0 - n / 10,
        )
        for n in range(count)
    ]


class ListRetriever(BaseRetriever):
    """Gives nodes that carry its name; may wait at a gate, or fail."""

    def __init__(
        self,
        name: str = "shelf",
        count: int = 2,
        *,
        fault: Callable[[str], BaseException | None] = lambda query: None,
        gate: asyncio.Event | None = None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.count, self.fault, self.gate, self.waiting = name, count, fault, gate, waiting
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        error = self.fault(query_bundle.query_str)
        if error is not None:
            raise error
        return nodes(self.name, self.count, query_bundle.query_str)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self.gate is not None:
            self.waiting()
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        return self._retrieve(query_bundle)


class FixedRetriever(ListRetriever):
    """Gives the same object for every query, whatever it is."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self.found


class OverridingRetriever(FixedRetriever):
    """Replaces `retrieve` itself, so that LlamaIndex checks nothing and takes no doubles out."""

    def retrieve(self, str_or_query_bundle: str | QueryBundle) -> list[NodeWithScore]:
        return self.found


class QuestionPerTool(BaseQuestionGenerator):
    """Makes the same sub-question for each tool every time."""

    def generate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return [SubQuestion(sub_question=f"part {tool.name}", tool_name=tool.name) for tool in tools]

    async def agenerate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return self.generate(tools, query)

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        return None


class Says(CustomLLM):
    """Answers every prompt with one text, word by word where it streams."""

    text: str = "Ada Berg"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.text)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        def tokens() -> CompletionResponseGen:
            said = ""
            for word in self.text.split(" "):
                delta = word if not said else f" {word}"
                said += delta
                yield CompletionResponse(text=said, delta=delta)

        return tokens()


class ToolCallingModel(MockFunctionCallingLLM):
    """Answers with what a function says, which is given the messages and the tools that are offered.

    LlamaIndex's own mock does not hand its function the tools in every supported version.
    """

    _say: Callable[..., ChatMessage] = PrivateAttr()

    def __init__(self, say: Callable[..., ChatMessage]) -> None:
        super().__init__()
        self._say = say

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=self._say(messages, tools=kwargs.get("tools") or ()))

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        async def parts() -> ChatResponseAsyncGen:
            done = await self.achat(messages, **kwargs)
            yield ChatResponse(message=done.message, delta=done.message.content or "")

        return parts()


def call(name: str, **arguments: Any) -> ToolCallBlock:
    """A call of a tool, as a model writes it."""
    return ToolCallBlock(
        tool_call_id=f"call-{name}-{sorted(arguments.items())}", tool_name=name, tool_kwargs=arguments
    )


def scripted(*turns: str | ChatMessage | ToolCallBlock | Sequence[ToolCallBlock]) -> MockFunctionCallingLLM:
    """A model whose turns are given: a text, one tool call, or several at once."""
    script = iter(turns)

    def say(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
        turn = next(script)
        if isinstance(turn, ChatMessage):
            return turn
        if isinstance(turn, str):
            return ChatMessage(role="assistant", content=turn)
        blocks = [turn] if isinstance(turn, ToolCallBlock) else list(turn)
        return ChatMessage(role="assistant", blocks=blocks)

    return MockFunctionCallingLLM(response_generator=say)
