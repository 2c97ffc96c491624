"""The runs of LangChain's call trees: which run a tree joins, continues or begins, and how that run ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragguard.capture.declarations import warn_of_unknown
from ragguard.capture.enclosing import is_paused
from ragguard.capture.pipeline_run import NAME, REFERENCES
from ragguard.capture.recorder import Recorder
from ragguard.records import Status
from ragguard_langchain.messages import NOTHING, Answer
from ragguard_langchain.open_calls import OpenCall
from ragguard_langchain.options import KEYS
from ragguard_langchain.scopes import TreeRun
from ragguard_langchain.spans import span_of

THREAD = "thread_id"
"""LangGraph's metadata key of the thread that is resumed after an interrupt."""
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")


class TreeRuns:
    """Joins, opens and ends the runs of call trees, and keeps the state that the trees of one run share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def identify(self, run: TreeRun, *, resumes: bool) -> None:
        """Finds out which run a tree joins or goes on with; `resumes` is true for a graph that was interrupted."""
        thread = run.given.get(THREAD)
        run.identify(run.given, f"langgraph:{thread}" if thread else "", resumes=resumes and bool(thread))

    def begin(self, root: OpenCall) -> None:
        """Begins the run of a tree."""
        run = root.notes.run
        if REFERENCES in run.given and not run.begun:
            run.refer(run.given[REFERENCES], f"metadata[{REFERENCES!r}]")
        run.name, run.metadata = str(run.given.get(NAME) or run.name), kept_metadata(run.given)
        run.begin(trace=span_of(root.id))

    def retrieves(self, open_call: OpenCall, query: str) -> None:
        """Begins the run of a call with its first retrieval."""
        run = open_call.notes.run
        if is_paused():
            return
        if not run.begun:
            self.begin(open_call.root or open_call)
        if not run.first_query:
            run.first_query = query

    def end(
        self,
        root: OpenCall,
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Ends the run of a tree that has ended, unless other code ends the run or the run waits to be resumed."""
        run = root.notes.run
        if status == "ok" and run.name and not run.first_query:
            self.recorder.calls.seen(root.run_id, "chain", run.name)
        if not run.begun:
            if status == "ok" and root.sampled and not run.interrupted:
                self.recorder.without_steps(run.id)
            return
        about: dict[str, Any] = {}
        question = question or run.question
        if run.standalone and run.standalone != question and run.follows_up():
            about["original_question"], question = question, run.standalone
        if not question:
            question = run.first_query
            if question and run.owned:
                about["question_source"] = "query"
        waits = run.interrupted or (answer.calls_tools and bool(run.names.thread))
        if status == "ok" and waits and run.owned:
            status = "interrupted"
        waits_for = run.names.thread if waits and status == "interrupted" else ""
        if answer.kind and not waits_for:
            about["answer_content"] = answer.kind
        run.end(
            None if waits_for else answer.text, status, error, question=question, metadata=about,
            trace=span_of(root.id), waits_for=waits_for,
        )  # fmt: skip
        if run.held:
            self.recorder.run_released(run.id, root.id)


def kept_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata that the record of a run takes over from the metadata of its call."""
    warn_of_unknown(metadata, "metadata", KEYS)
    entries = {key: value for key, value in metadata.items() if not key.startswith(_NOT_KEPT)}
    entries["framework"] = "langchain"
    return entries
