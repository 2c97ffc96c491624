"""A retriever that is the first call of its tree: the commonest case, and the one that has to cost least."""

from __future__ import annotations

import threading
import time
import weakref
from asyncio import Task
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ragguard.capture.enclosing import current_task
from ragguard.capture.trace import trace_context
from ragguard.records import TraceContext
from ragguard_langchain.options import NO_OPTIONS, CallOptions
from ragguard_langchain.spans import span_of
from ragguard_langchain.stack import Where

LIMIT = 65_536
"""How many may be open; the oldest go first."""


class BareRetrieval:
    """An open retrieval in which nothing has happened: the recorder hears of it when it is over.

    Something that happens in it makes it a place in a tree, with a run and a step that are open.
    """

    __slots__ = (
        "id",
        "metadata",
        "name",
        "options",
        "over",
        "query",
        "started_ns",
        "task",
        "thread",
        "top_k",
        "trace",
    )
    around: None = None
    """It is in nothing else that retrieves."""

    def __init__(
        self,
        id: UUID,
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        options: CallOptions = NO_OPTIONS,
        top_k: int | None = None,
    ) -> None:
        self.options, self.top_k = options, top_k
        self.id, self.query, self.name = id, query, name
        self.metadata = metadata.copy() if type(metadata) is dict else metadata
        self.trace: TraceContext | None = span_of(id, retrieval=True) or trace_context()
        self.task: weakref.ref[Task[Any]] | None = current_task()
        """What says nothing when it is cancelled: the task that runs it."""
        self.thread = threading.get_ident()
        self.over = False
        self.started_ns = time.time_ns()

    @property
    def began_in(self) -> Where:
        """Where it is at work."""
        return self.thread, self.task
