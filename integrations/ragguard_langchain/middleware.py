"""The guard between an agent's tools and its model: what a tool found is judged before the model reads it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from ragguard.capture.decisions import Verdict
from ragguard.capture.snapshot import passages_of
from ragguard.capture.splitters import Splitter
from ragguard.errors import InvalidInput
from ragguard.guard import DistractorGuard
from ragguard.guard.judging import checked
from ragguard_langchain.excerpt import without
from ragguard_langchain.filter import apruned, pruned
from ragguard_langchain.messages import documents_of, tool_message, tool_query, tool_text
from ragguard_langchain.verdicts import Told, tell

Result: TypeAlias = ToolMessage | Command[Any]


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Drops what would mislead the model from the results of an agent's retrieving tools.

        create_agent(model, tools, middleware=[GuardMiddleware(guard)])

    A tool retrieves if it gives documents as its artifact (`response_format="content_and_artifact"`), or if it is
    one of `tools`, which names tools that give one string, each with a splitter that takes the string apart, as
    for RagGuardCallback. Dropped passages are cut out of the text that the model reads, with what frames them;
    where they cannot be told apart in it, it is written anew by `render`, from the texts that stay. The artifact
    keeps the documents that stay. All other tools pass.
    """

    def __init__(
        self,
        guard: DistractorGuard,
        *,
        tools: Mapping[str, Splitter] | None = None,
        render: Callable[[Sequence[str]], str] = "\n\n".join,
    ) -> None:
        super().__init__()
        for name, splitter in (tools or {}).items():
            if not callable(splitter):
                raise InvalidInput(f"tools[{name!r}]", splitter, "a function from a text to passages")
        if not callable(render):
            raise InvalidInput("render", render, "a function from texts to one text")
        self._guard, self._tools, self._render = checked(guard), dict(tools or {}), render

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Runs the tool, then the guard."""
        started_ns = time.time_ns()
        result = handler(request)
        found = self._found(request, result)
        if not found:
            return result
        kept, verdict = pruned(self._guard, _query(request), found)
        tell(_told(request, verdict, started_ns), _callbacks(request))
        return self._rewritten(result, found, kept, verdict)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Runs the tool, then the guard."""
        started_ns = time.time_ns()
        result = await handler(request)
        found = self._found(request, result)
        if not found:
            return result
        kept, verdict = await apruned(self._guard, _query(request), found)
        tell(_told(request, verdict, started_ns), _callbacks(request))
        return self._rewritten(result, found, kept, verdict)

    def _found(self, request: ToolCallRequest, result: Result) -> list[Document]:
        """The passages in a tool's result, as documents; none where the tool does not retrieve or failed."""
        if tool_message(result) is None:
            return []
        documents = documents_of(result)
        if documents is not None:
            return documents
        splitter = self._tools.get(str(request.tool_call.get("name")))
        if splitter is None:
            return []
        text, failed = tool_text(result)
        if failed:
            return []
        try:
            passages = passages_of(splitter(text))
        except Exception:  # noqa: BLE001 - a text that cannot be taken apart is left whole
            return []
        return [
            Document(passage.text, id=passage.id or None, metadata=passage.metadata) for passage in passages
        ]

    def _rewritten(
        self, result: Result, found: list[Document], kept: list[Document], verdict: Verdict
    ) -> Result:
        """The result without what was dropped; the very same where nothing was."""
        message = tool_message(result)
        if len(kept) == len(found) or message is None:
            return result
        gone = {drop.position for drop in verdict.decision.dropped}
        content = without(
            message.content,
            [one.page_content for one in found],
            [rank not in gone for rank in range(1, len(found) + 1)],
            self._render,
        )
        artifact = kept if documents_of(message) is not None else message.artifact
        fewer = message.model_copy(update={"content": content, "artifact": artifact})
        if isinstance(result, Command):
            update: dict[str, Any] = dict(result.update or {})
            update["messages"] = [fewer if one is message else one for one in update["messages"]]
            return replace(result, update=update)
        return fewer


def _query(request: ToolCallRequest) -> str:
    return tool_query(request.tool_call.get("args"), "")


def _told(request: ToolCallRequest, verdict: Verdict, started_ns: int) -> Told:
    call = request.tool_call
    return Told(verdict, _query(request), str(call.get("name") or ""), str(call.get("id") or ""), started_ns)


def _callbacks(request: ToolCallRequest) -> Callbacks:
    """Those of the graph's node; None, where the tool was called by other code."""
    config = getattr(request.runtime, "config", None) or {}
    return config.get("callbacks")
