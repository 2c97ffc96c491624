"""Real parts of LangChain with scripted contents: retrievers over a fixed shelf, chat models told what to say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForLLMRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, PrivateAttr


class Embeddings:
    """Vectors by the lengths of texts."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(len(text)), 1.0]


def documents(name: str, count: int = 2, query: str = "") -> list[Document]:
    """Documents `name-0`, `name-1` … with falling scores."""
    return [
        Document(
            id=f"{name}-{n}",
            page_content=f"{name} {n} about {query}",
            metadata={"source": name, "score": 1.0 - n / 10},
        )
        for n in range(count)
    ]


class ListRetriever(BaseRetriever):
    """Gives documents that carry its name; may fail, or wait at a gate under async."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    shelf: str = "shelf"
    count: int = 2
    fault: Callable[[str], BaseException | None] = lambda query: None
    gate: asyncio.Event | None = None
    waiting: Callable[[], None] = lambda: None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        error = self.fault(query)
        if error is not None:
            raise error
        return documents(self.shelf, self.count, query)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.gate is not None:
            self.waiting()
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        return self._get_relevant_documents(query, run_manager=run_manager.get_sync())


Turn = str | AIMessage | ToolCall | Sequence[ToolCall]


class Says(BaseChatModel):
    """A chat model whose turns are given; streams word by word. Takes tools and makes no use of them."""

    turns: list[Any]
    _next: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _turn(self) -> AIMessage:
        turn = self.turns[self._next % len(self.turns)]
        self._next += 1
        if isinstance(turn, AIMessage):
            return turn
        if isinstance(turn, str):
            return AIMessage(turn)
        return AIMessage("", tool_calls=[turn] if isinstance(turn, dict) else list(turn))

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._turn())])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        turn = self._turn()
        calls = [
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=n)
            for n, call in enumerate(turn.tool_calls)
        ]
        words = str(turn.content).split(" ")
        for n, word in enumerate(words):
            text = word if n == 0 else f" {word}"
            chunk = AIMessageChunk(text, tool_call_chunks=calls if n == 0 else [])
            if run_manager is not None:
                run_manager.on_llm_new_token(text, chunk=ChatGenerationChunk(message=chunk))
            yield ChatGenerationChunk(message=chunk)


def says(*turns: Turn) -> Says:
    """A model with these turns, over again from the first when it is asked more often."""
    return Says(turns=list(turns))


def call(name: str, **arguments: Any) -> ToolCall:
    """A call of a tool, as a model writes it."""
    words = "-".join(str(value) for value in arguments.values())
    return ToolCall(name=name, args=arguments, id=f"call-{name}-{words}", type="tool_call")
