"""Collects the documents of the retrievers inside one tool call: such a tool may return their documents as one text.

`create_retriever_tool` does so, and many functions that search. The documents come through LangChain's own callbacks,
to a handler that is set only in the context of that tool call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook


class InnerRetrievals(BaseCallbackHandler):
    """Collects the documents of the retrievers that a tool calls itself, without those of agents that it runs."""

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
