"""The run of a framework's outermost call: a run of its own, from the first retrieval on, or one that it joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.events import RunNames
from ragguard.capture.handle import innermost
from ragguard.capture.recorder import Recorder
from ragguard.capture.snapshot import text_in
from ragguard.errors import InvalidInput
from ragguard.records import Status, TraceContext
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import describe

NAME, REFERENCES = "ragguard_name", "ragguard_references"
RUN_ID, RESUME = "ragguard_run_id", "ragguard_resume"
RUN_KEYS = (REFERENCES, NAME, RUN_ID, RESUME)
"""The keys of metadata, or the tags, by which a call says what its run is."""


class PipelineRun:
    """A run as a framework's outermost call sees it.

    A run of the call's own begins with its first retrieval, since a call that retrieves nothing is no run. A run that
    the call joins is begun and ended by other code, and only gets what the call reports. Default values stay on the
    class, since hooks make these objects.
    """

    question = ""
    name = ""
    references: list[str] | None = None
    metadata: Mapping[str, Any] = {}
    sub_questions: list[str] | None = None
    names = RunNames()
    trace: TraceContext | None = None
    started_ns = 0
    begun = False
    over = False
    waits = False
    """True while the run waits for a person's answer."""

    def __init__(self, recorder: Recorder, id: str, *, owned: bool = True) -> None:
        self.recorder, self.id, self.owned = recorder, id, owned
        """`owned` is true for a run of the call's own."""
        self.begun = not owned

    def identify(self, given: Mapping[str, Any], thread: str = "", *, resumes: bool = False) -> None:
        """Joins the run of `rg.run(...)` around the caller, or the open run that the `given` metadata or tags name
        where that one is to be resumed or `rg.run(...)` holds it; else notes what this run is called. `resumes` is true
        where the framework goes on with what waits for the `thread`."""
        named = text_in(given.get(RESUME) or "")
        self.names = RunNames(named or text_in(given.get(RUN_ID) or ""), thread, resumes or bool(named))
        handle = innermost(self.recorder)
        if handle is not None:
            self.id = handle.id
        elif (run := self.recorder.named(self.names.caller_id)) and (
            self.names.resumes or run.collected is not None
        ):
            self.id = run.id
        else:
            return
        self.owned, self.begun = False, True

    def refer(self, references: object, where: str) -> None:
        """Takes the answers that are known to be right; `where` says where they were given, for an error."""
        try:
            self.references = references_of(references)
        except InvalidInput as error:
            self.recorder.faults.note(where, error)

    def begin(self, query: str = "", trace: TraceContext | None = None) -> None:
        """Begins the run, once. `query` is that of the first retrieval, in place of a question that is not known;
        `trace` is the call's span, where another instrumentation has made one."""
        if self.begun:
            return
        self.begun = True
        self.recorder.run_started(
            self.id, self.question or query, name=self.name, references=self.references, metadata=self.metadata,
            started_ns=self.started_ns, trace=trace or self.trace, names=self.names,
        )  # fmt: skip
        if self.over:  # its call was given up meanwhile, in another thread
            self.recorder.run_ended(self.id, status="interrupted")

    def end(
        self, answer: str | None, status: Status = "ok", error: BaseException | None = None, *, question: str = "",
        metadata: Mapping[str, Any] | None = None, trace: TraceContext | None = None, waits_for: str = "",
    ) -> None:  # fmt: skip
        """Ends the run, once; other code that holds the run learns of the question and the answer. `waits_for` names
        what resumes a run that was interrupted."""
        if self.over:
            return
        self.over = self.owned
        if not self.begun:
            return
        if not self.owned:
            self.recorder.run_noted(self.id, question, answer, metadata, self.sub_questions)
            return
        if status == "cancelled" and self.waits:
            status = "interrupted"
        if error is not None and status == "error":
            metadata = {**(metadata or {}), "error": describe(error)}
        self.recorder.run_ended(
            self.id, answer, status, question=question, sub_questions=self.sub_questions, metadata=metadata,
            trace=trace, waits_for=waits_for,
        )  # fmt: skip
