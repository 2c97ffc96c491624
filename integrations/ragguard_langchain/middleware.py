"""The guard as middleware of an agent: judges a tool's passages before the model reads them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID

from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.tracers.context import register_configure_hook
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from ragguard.capture.decisions import Verdict
from ragguard.capture.documents import snapshot, unpacked
from ragguard.capture.shapes import query_in
from ragguard.capture.snapshot import documents_in, is_scored, passages_of
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_outputs import tool_message, tool_texts
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.items import apruned, checked, pruned
from ragguard.runtime.faults import NOTICES, describe
from ragguard_langchain.attachment import report

Result: TypeAlias = ToolMessage | Command[Any]


class InnerRetrievals(BaseCallbackHandler):
    """Collects the documents of the retrievers that a tool calls itself, without those of agents that it runs.

    `create_retriever_tool` and many functions that search return these documents as one text. They come through
    LangChain's own callbacks, to a handler that is set only in the context of that tool call.
    """

    run_inline = True
    ignore_llm = ignore_chat_model = ignore_retry = ignore_custom_event = ignore_chain = True

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self._tool: UUID | None = None

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        """Remembers the first tool call that begins, which is around all others."""
        self._tool = self._tool or run_id

    def on_retriever_end(
        self, documents: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Collects the documents of a retriever that the tool itself called."""
        if parent_run_id is not None and parent_run_id == self._tool and isinstance(documents, (list, tuple)):
            self.documents += documents


_listening: ContextVar[InnerRetrievals | None] = ContextVar("ragguard_inner_retrievals", default=None)
register_configure_hook(_listening, inheritable=True)


@contextmanager
def inner_retrievals() -> Iterator[InnerRetrievals]:
    """Listens while a tool runs: `with inner_retrievals() as inner: handler(request)`."""
    inner = InnerRetrievals()
    before = _listening.set(inner)
    try:
        yield inner
    finally:
        _listening.reset(before)


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Drops what would mislead the model from the results of an agent's retrieving tools.

        create_agent(model, tools, middleware=[GuardMiddleware(guard)])

    A tool retrieves if it gives documents as its artifact (`response_format="content_and_artifact"`), if it hands
    on as text what a retriever gave that it calls (`create_retriever_tool`), or if it is one of `tools`. Where
    passages are dropped, the text that the model reads is written anew by `render`, from the texts that stay, without
    what stood between them; an artifact that is a list keeps those that stay. All other results pass, which is logged
    once a tool.

    Args:
        guard: The guard that judges.
        tools: Tools that give one string: name → splitter that takes it apart. None in a splitter's place says that
            a tool does not retrieve.
        render: A function from the kept texts to the text that the model reads, used if passages are dropped.
    """

    def __init__(
        self,
        guard: DistractorGuard,
        *,
        tools: Mapping[str, Splitter | None] | None = None,
        render: Callable[[Sequence[str]], str] = "\n\n".join,
    ) -> None:
        super().__init__()
        for name, splitter in (tools or {}).items():
            if splitter is not None and not callable(splitter):
                raise InvalidInput(
                    f"tools[{name!r}]",
                    splitter,
                    "a function from a text to passages; None: it does not retrieve",
                )
        if not callable(render):
            raise InvalidInput("render", render, "a function from texts to one text")
        self._guard, self._tools, self._render = checked(guard), dict(tools or {}), render

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Runs the tool, then the guard."""
        with inner_retrievals() as inner:
            result = handler(request)
        if not (documents := self._found(request, result, inner)):
            return result
        verdict = pruned(self._guard, _query(request), unpacked(snapshot(documents)))
        return self._judged(request, result, verdict)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Runs the tool, then the guard."""
        with inner_retrievals() as inner:
            result = await handler(request)
        if not (documents := self._found(request, result, inner)):
            return result
        verdict = await apruned(self._guard, _query(request), unpacked(snapshot(documents)))
        return self._judged(request, result, verdict)

    def _found(
        self, request: ToolCallRequest, result: Result, inner: InnerRetrievals
    ) -> list[Document] | None:
        """Returns a tool result's passages; None where there are none, which is logged where it may be a mistake."""
        name = str(request.tool_call.get("name") or "")
        splitter = self._tools.get(name)
        if splitter is None and name in self._tools:
            return None
        message = tool_message(result)
        if message is None:
            if not isinstance(result, Command):  # a command without a message gives the model nothing
                self._not_understood(name, f"it gave {type(result).__name__}, not one message")
            return None
        if (documents := _documents_in(message.artifact)) is not None:
            return documents
        texts, failed = tool_texts(result)
        text = "\n".join(texts)
        if failed or not text.strip():
            return None
        if splitter is None:
            documents = [one for one in inner.documents if isinstance(one, Document)]
            documents = [one for one in documents if one.page_content.strip() and one.page_content in text]
            if not documents:
                given = "its artifact has no documents" if message.artifact is not None else "it is a text"
                self._not_understood(name, f"{given}, and no text of a retriever that it called stands in it")
            return documents
        try:
            passages = passages_of(splitter(text))
        except Exception as error:  # noqa: BLE001 - a text that cannot be taken apart is left whole
            self._not_understood(name, f"its splitter failed: {describe(error)}")
            return None
        if not passages:
            self._not_understood(name, "its splitter found no passages in its text")
        return [Document(one.text, id=one.id or None, metadata=one.metadata) for one in passages]

    def _not_understood(self, tool: str, why: str) -> None:
        """Logs, once a tool, that a result passes unjudged, and what to declare."""
        NOTICES.once(
            f"guard tool {tool}",
            f"GuardMiddleware found no passages in the output of the tool {tool!r}, so it judges nothing there: {why}. "
            "If the tool retrieves, let it return documents as its artifact "
            "(response_format='content_and_artifact'), or name it with a splitter "
            f"(tools={{{tool!r}: paragraphs}}); if it does not, tools={{{tool!r}: None}} says so.",
        )

    def _judged(self, request: ToolCallRequest, result: Result, verdict: Verdict) -> Result:
        """Reports the verdict, and returns the result without the dropped passages; the very same result where none
        was dropped."""
        call, config = request.tool_call, getattr(request.runtime, "config", None) or {}
        # None where other code called the tool
        report(verdict, _query(request), config.get("callbacks"), str(call.get("id") or ""))
        message, gone = tool_message(result), {drop.position for drop in verdict.decision.dropped}
        if not gone or message is None:
            return result
        stays = [rank not in gone for rank in range(1, len(verdict.judged) + 1)]
        fewer = message.model_copy(
            update={
                "content": self._rendered(message.content, [one.text for one in verdict.decision.kept]),
                "artifact": _thinned(message.artifact, stays),
            }
        )
        if not isinstance(result, Command):
            return fewer
        update: dict[str, Any] = dict(result.update or {})
        update["messages"] = [fewer if other is message else other for other in update["messages"]]
        return replace(result, update=update)

    def _rendered(self, content: Any, texts: Sequence[str]) -> Any:
        """Returns a message's content with these texts in place of its text; what is no text, such as an image,
        stays."""
        text = self._render(texts)
        if not isinstance(content, list):
            return text
        others = [one for one in content if isinstance(one, dict) and not isinstance(one.get("text"), str)]
        return [{"type": "text", "text": text}, *others]


def _documents_in(artifact: object) -> list[Document] | None:
    """Returns the documents of an artifact, without the scores beside them; None where it holds anything else."""
    found = documents_in(artifact)
    if found is None:
        return None
    documents = [one[0] if is_scored(one) else one for one in found]
    return documents if all(isinstance(document, Document) for document in documents) else None


def _thinned(artifact: Any, stays: Sequence[bool]) -> Any:
    """Returns a list of documents without those that do not stay; an artifact of another form as it is."""
    if isinstance(artifact, (list, tuple)) and len(artifact) == len(stays):
        return [one for one, stay in zip(artifact, stays, strict=True) if stay]
    return artifact


def _query(request: ToolCallRequest) -> str:
    return query_in(request.tool_call.get("args") or {})
