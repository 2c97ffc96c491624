"""Records retriever calls that are outermost and runs of their own: the most frequent case, which has to cost least.

It is one record, a `WholeRun`, from the hook of its start to the store's writer. Where something else happens in it,
the call tree makes an open run with an open step of it (`CallTree.open_call`).
"""

from __future__ import annotations

import time
import weakref
from asyncio import Task
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from ragguard.capture.declarations import CaptureOptions
from ragguard.capture.enclosing import current_task, is_paused
from ragguard.capture.handle import current_handle, innermost
from ragguard.capture.open_runs import WholeRun
from ragguard.capture.pipeline_run import RUN_KEYS
from ragguard.capture.recorder import Recorder
from ragguard.capture.trace import trace_context
from ragguard_langchain.options import unpack_of
from ragguard_langchain.spans import span_of
from ragguard_langchain.tree_runs import THREAD, kept_metadata

LIMIT = 65_536
"""The most open calls that are kept; beyond it the oldest are forgotten."""
_JOINS = frozenset(RUN_KEYS) | {THREAD}
"""Metadata keys by which a call may belong to another run, or that are recorded when the call begins."""


class BareRetrieval(WholeRun):
    """A retriever call in which nothing else has happened so far, while it is open; the record of its run, once it
    has ended."""

    __slots__ = ("call_metadata", "options", "task")
    id: UUID
    """The id that LangChain gave to the call."""

    def __init__(
        self,
        call: UUID,
        query: str,
        name: str,
        *,
        metadata: Mapping[str, Any],
        options: CaptureOptions,
        top_k: int | None,
    ) -> None:
        # Each field is set here: it takes half the time of a call of the data class.
        self.id = call
        self.query, self.name, self.top_k, self.found = query, name, top_k, ()
        self.metadata = partial(kept_metadata, metadata)
        self.call_metadata, self.options, self.unpack = metadata, options, unpack_of(options)
        self.trace = span_of(call, retrieval=True) or trace_context()
        self.task: weakref.ref[Task[Any]] | None = current_task()
        """The asyncio task that runs the call; LangChain reports no end where that task is cancelled."""
        self.ended_ns = 0
        self.started_ns = time.time_ns()


class BareRetrievals(dict[UUID | None, BareRetrieval]):
    """The open retriever calls that are runs of their own, by LangChain's ids."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def begin(
        self,
        id: UUID,
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        *,
        options: CaptureOptions,
        top_k: int | None,
    ) -> BareRetrieval | None:
        """Begins the record of an outermost retriever call; returns None where the call belongs to another run, is
        to be recorded at once, or is not recorded."""
        recorder = self._recorder
        if (
            is_paused()
            or not (recorder.sampling.takes_all or recorder.sampling.takes(str(id)))
            or (current_handle.get() is not None and innermost(recorder) is not None)
            or (metadata and not _JOINS.isdisjoint(metadata))
        ):
            return None
        metadata_copy = {} if not metadata else metadata.copy() if type(metadata) is dict else metadata
        self[id] = retrieval = BareRetrieval(
            id, query, name, metadata=metadata_copy, options=options, top_k=top_k
        )
        if len(self) > LIMIT:
            self.pop(next(iter(self)), None)
        return retrieval

    def end(self, retrieval: BareRetrieval, found: Any) -> None:
        """Reports a retriever call that has ended to the recorder, with a snapshot of its documents."""
        retrieval.trace = span_of(retrieval.id, retrieval=True) or retrieval.trace
        self._recorder.run_made(retrieval, found)
