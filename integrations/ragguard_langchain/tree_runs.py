"""The runs of LangChain's calls: which run a tree of calls joins, continues or begins, and how that run ends.

An outermost retriever call is a run of its own: the most frequent case, which has to cost least. It is one record, a
`WholeRun`, from the hook of its start to the store's writer. Where something else happens in it, the call tree makes an
open run with an open step of it (`CallTree.open_call`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from ragguard.capture.call_paths import CallPath
from ragguard.capture.documents import unpacked
from ragguard.capture.pipeline_run import NAME, REFERENCES, PipelineRun, kept_metadata
from ragguard.capture.recorder import Recorder, is_paused, trace_context
from ragguard.capture.retrievals import WholeRun
from ragguard.capture.shapes import NOTHING, Answer
from ragguard.records import Status
from ragguard_langchain.spans import span_of

Metadata: TypeAlias = Mapping[str, Any] | None
"""The metadata that LangChain tells of a call."""


class TreeRun(PipelineRun):
    """The run of a call tree, with what the tree has seen in it so far."""

    interrupted = False
    held = False
    """True where the tree has joined a run and keeps that run open until the tree ends."""
    first_query = ""
    streams: Mapping[object, list[str]] = {}
    """The texts that models which are at work have given so far, by the ids of the models' calls."""

    def __init__(
        self,
        recorder: Recorder,
        call: UUID,
        question: str,
        name: str,
        metadata: Mapping[str, Any],
    ) -> None:
        super().__init__(recorder, str(call))
        self.call = call
        """The id of the tree's first call."""
        self.question, self.name, self.given = question, name, metadata
        """`given` is the metadata of the call's config."""

    def open(self) -> None:
        """Begins the run, once, with what the metadata of its call say of it."""
        if self.begun:
            return
        if self.names.resumes and not self.question:
            self.question = self.recorder.here.question_before(self.names.thread)
        if REFERENCES in self.given:
            self.refer(self.given[REFERENCES], f"metadata[{REFERENCES!r}]")
        self.name, self.metadata = (
            str(self.given.get(NAME) or self.name),
            kept_metadata(self.given, "langchain"),
        )
        self.begin(trace=span_of(self.call))

    def retrieves(self, query: str) -> None:
        """Begins the run with its first retrieval."""
        if is_paused():
            return
        self.open()
        self.first_query = self.first_query or query

    def asked(self, key: object, given: object, path: CallPath) -> None:
        """Notes that a model is asked, which may give its reply piece by piece."""
        self.streams = {**self.streams, key: []}
        super().asked(key, given, path)

    def replied(self, key: object, reply: object) -> None:
        """Notes the reply of a model."""
        self.streams = {other: tokens for other, tokens in self.streams.items() if other != key}
        super().replied(key, reply)

    def failed(self, key: object, error: BaseException) -> None:
        """Notes that a call of a model has failed. If its stream was closed, the reply is the part that was given
        out."""
        if isinstance(error, GeneratorExit) and (text := "".join(self.streams.get(key, ()))):
            self.replied(key, text)
        self.streams = {other: tokens for other, tokens in self.streams.items() if other != key}

    def _cut_stream(self) -> str:
        """Returns what the latest model at work has given so far, which is then its reply; '' where it has given
        nothing."""
        given = {key: text for key, tokens in self.streams.items() if (text := "".join(tokens))}
        for key, text in given.items():
            self.replied(key, text)
        return next(reversed(given.values()), "")

    def close(
        self,
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Ends the run with its tree, unless other code ends the run or the run waits to be resumed. If its
        stream was closed, the answer is the part that was given out; LangChain may report an end, without the last
        piece."""
        cut, is_closed = self._cut_stream(), error is None or isinstance(error, GeneratorExit)
        if cut and is_closed and cut.startswith(answer.text or ""):
            answer, status = Answer(cut), "cancelled"
        if status in ("ok", "error") and self.name and not self.first_query:
            self.recorder.here.calls.seen("chain" if status == "ok" else "failed chain", self.name)
        thread = self.names.thread
        waits = self.interrupted or (bool(thread) and (answer.calls_tools or status != "ok"))
        if not self.begun:
            if waits and thread:
                self.recorder.here.waits(thread, question or self.question)
            elif status == "ok" and not self.interrupted:
                self.recorder.without_steps(self.id)
            return
        if status == "ok" and waits and self.owned:
            status = "interrupted"
        waits_for = thread if waits and status != "ok" else ""
        self.end(
            None if waits_for else answer.text, status, error,
            question=question or self.question or self.first_query, trace=span_of(self.call), waits_for=waits_for,
            names=answer.names,
        )  # fmt: skip
        if self.held:
            self.recorder.run_released(self.id, self.call)


class BareRetrieval(WholeRun):
    """A retriever call in which nothing else has happened so far, while it is open; the record of its run, once it
    has ended."""

    __slots__ = ("call_metadata",)
    id: UUID
    """The id that LangChain gave to the call."""

    def __init__(
        self,
        call: UUID,
        query: str,
        name: str,
        metadata: Metadata,
        *,
        top_k: int | None,
    ) -> None:
        # Each field is set here: it takes half the time of a call of the data class.
        self.id = call
        self.query, self.name, self.top_k, self.result = query, name, top_k, ()
        about = {} if not metadata else metadata.copy() if type(metadata) is dict else metadata
        self.metadata = partial(kept_metadata, about, "langchain")
        self.call_metadata, self.unpack = about, unpacked
        self.trace = span_of(call, retrieval=True) or trace_context()
        self.ended_ns = 0
        self.started_ns = time.time_ns()
