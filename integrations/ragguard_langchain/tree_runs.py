"""The runs of LangChain's call trees: which run a tree joins, continues or begins, and how that run ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ragguard.capture.declarations import warn_of_unknown
from ragguard.capture.enclosing import is_paused
from ragguard.capture.events import Otherwise, RunIdentity
from ragguard.capture.handle import current_run
from ragguard.capture.recorder import Recorder
from ragguard.errors import InvalidInput
from ragguard.records import Status
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import describe
from ragguard_langchain.clock import TreeClock
from ragguard_langchain.messages import NOTHING, Answer
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.options import KEYS, NAME, REFERENCES, RESUME, RUN_ID
from ragguard_langchain.scopes import RunNotes, Scope
from ragguard_langchain.spans import span_of

REMEMBERED_THREADS = 1024
"""The number of remembered threads that were interrupted before their first retrieval."""
THREAD = "thread_id"
"""LangGraph's metadata key of the thread that is resumed after an interrupt."""
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")


class TreeRuns:
    """Joins, opens and ends the runs of call trees, and keeps the state that the trees of one run share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._interrupted: dict[str, RunNotes] = {}
        """The notes of calls that were interrupted before their first retrieval, and so have no run, by thread."""
        self._clocks: dict[str, TreeClock] = {}
        """The clocks of the runs that trees have joined."""

    def joined(self, run: RunNotes, resumes: bool) -> tuple[str, bool]:
        """Returns the id of the open run that a tree is a part of ('' for none), and whether that run is sampled."""
        handle = current_run(self.recorder)
        if handle is not None:
            run.owner, run.opened = False, True
            return handle.key, handle.sampled
        named = run.metadata.get(RUN_ID)
        resumes = resumes or bool(run.metadata.get(RESUME))
        if named and self.recorder.knows(str(named)) and (resumes or self.recorder.is_handles(str(named))):
            run.owner, run.opened = False, True
            return str(named), self.recorder.sampling.takes(str(named))
        if thread := run.metadata.get(THREAD):
            run.thread = f"langgraph:{thread}"
        return "", True

    def identity(self, run: RunNotes, id: UUID, *, resumes: bool) -> RunIdentity | None:
        """Returns the identity of the tree's run where the run has an id of its own or continues an earlier run, else
        None."""
        before = self._interrupted.pop(run.thread, None) if run.thread else None
        if before is not None and resumes:
            run.question, run.metadata = run.question or before.question, {**before.metadata, **run.metadata}
        named, thread = run.metadata.get(RUN_ID), run.thread if resumes else ""
        if named:
            identity = self.recorder.claim(str(named), resumes=resumes)
            identity.thread = thread
        elif thread:
            otherwise: Otherwise = "begin with a step" if self.recorder.sampling.takes_all else "drop"
            identity = RunIdentity(str(id), thread=thread, otherwise=otherwise)
        else:
            return None
        run.resumed = identity.continues
        return identity

    def clock_of(self, id: UUID, run_id: str, run: RunNotes, call_id: str) -> TreeClock:
        """Returns the clock of a tree's first call; its time is after all earlier retrievals of the run."""
        if run.owner:
            return TreeClock(self.recorder.next_turn(run_id) if run.resumed else 0)
        around = self.clock(run_id)
        return around.inside(id, parallel=("calls", around.messages) if call_id else None)

    def clock(self, run_id: str) -> TreeClock:
        """Returns the clock of a run that trees join."""
        clock = self._clocks.setdefault(run_id, TreeClock())
        clock.reach(self.recorder.next_turn(run_id))
        return clock

    def open(self, root: OpenCall[Scope]) -> None:
        """Begins the run of a tree."""
        run = root.notes.run
        run.opened = True
        references = None
        if REFERENCES in run.metadata:
            try:
                references = references_of(run.metadata[REFERENCES])
            except InvalidInput as error:
                self.recorder.faults.note(f"metadata[{REFERENCES!r}]", error)
        self.recorder.run_started(
            root.run_id, run.question, name=str(run.metadata.get(NAME) or run.name), references=references,
            metadata=kept_metadata(run.metadata), started_ns=root.started_ns, trace=span_of(root.id) or run.trace,
            identity=run.identity,
        )  # fmt: skip

    def retrieves(self, open_call: OpenCall[Scope], query: str) -> None:
        """Begins the run of a call with its first retrieval."""
        run = open_call.notes.run
        if is_paused():
            return
        if not run.opened:
            self.open(open_call.root or open_call)
        if not run.first_query:
            run.first_query = query

    def end(
        self,
        root: OpenCall[Scope],
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Ends the run of a tree that has ended, unless other code ends the run or the run waits to be resumed."""
        run = root.notes.run
        if status == "ok" and run.name and not run.first_query:
            self.recorder.calls.seen(root.run_id, "chain", run.name)
        if not run.opened:
            if run.owner and run.thread and (run.interrupted or answer.calls_tools):
                self._interrupted[run.thread] = run
                if len(self._interrupted) > REMEMBERED_THREADS:
                    self._interrupted.pop(next(iter(self._interrupted)), None)
            if status == "ok" and root.sampled and not run.interrupted:
                self.recorder.without_steps(root.run_id)
            return
        about: dict[str, Any] = {}
        question = question or run.question
        if run.standalone and run.standalone != question and run.follows_up():
            about["original_question"], question = question, run.standalone
        if not question:
            question = run.first_query
            if question and run.owner:
                about["question_source"] = "query"
        if answer.kind:
            about["answer_content"] = answer.kind
        if not run.owner:
            self._note(root, question, answer, about)
            return
        if run.thread and (run.interrupted or answer.calls_tools) and status in ("ok", "interrupted"):
            about.pop("answer_content", None)  # the id of the tool call that waits
            self.recorder.run_ended(
                root.run_id, None, "interrupted", question=question, metadata=about,
                trace=span_of(root.id, ends=True), waits_for=run.thread,
            )  # fmt: skip
            return
        if error is not None and status == "error":
            about["error"] = describe(error)
        if run.interrupted and status == "ok":
            status = "interrupted"
        self.recorder.run_ended(
            root.run_id,
            answer.text,
            status,
            question=question,
            metadata=about,
            trace=span_of(root.id, ends=True),
        )

    def _note(self, root: OpenCall[Scope], question: str, answer: Answer, about: dict[str, Any]) -> None:
        """Keeps what a tree reports about a run that other code ends."""
        self.recorder.run_noted(root.run_id, question, answer.text, about)
        if root.notes.run.holds:
            self.recorder.run_released(root.run_id)

    def closed(self, run_id: str) -> None:
        """Removes the state that the trees of a run share, at its end."""
        self._clocks.pop(run_id, None)


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata that the record of a run takes over from the metadata of its call."""
    warn_of_unknown(metadata, "metadata", KEYS)
    kept = {key: value for key, value in metadata.items() if not key.startswith(_NOT_KEPT)}
    kept["framework"] = "langchain"
    return kept
