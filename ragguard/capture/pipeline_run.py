"""Common parts of all frameworks' adapters: the run of an outermost call, and what the end of a tool's call means.

The run of an outermost call is a run of its own, from the first retrieval on, or one that it joins. A tool's call was a
retrieval, had retrievals inside, or neither, by what it gave (`capture/tool_outputs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ragguard.capture.answer_flow import Texts
from ragguard.capture.call_paths import CallPath
from ragguard.capture.decisions import Verdict, decision_about, merged_decision, steps_concerned
from ragguard.capture.declarations import TOOL, warn_of_unknown
from ragguard.capture.events import UNNAMED, RunEnded, RunNames
from ragguard.capture.handle import innermost
from ragguard.capture.model_calls import TOOL_CALL
from ragguard.capture.recorder import Recorder
from ragguard.capture.retrievals import Unpack
from ragguard.capture.shapes import content_in, spoken
from ragguard.capture.snapshot import text_in
from ragguard.capture.splitters import Splitter
from ragguard.capture.tool_outputs import ToolResult
from ragguard.errors import InvalidInput
from ragguard.records import Status, TraceContext
from ragguard.runtime.arguments import references_of
from ragguard.runtime.faults import NOTICES, describe

_NO_ANSWER = (
    "the run {!r} ended without an answer: the pipeline's output has none of the usual names, only {}. Name the "
    "answer when you attach capture (answer=NAME, or a function of the output), or call run.answered(...). "
    "(Logged once)"
)
NAME, REFERENCES = "ragguard_name", "ragguard_references"
RUN_ID, RESUME = "ragguard_run_id", "ragguard_resume"
RUN_KEYS = (REFERENCES, NAME, RUN_ID, RESUME)
"""The keys of metadata, or the tags, by which a call says what its run is."""
K = "ragguard_k"
"""The metadata key by which a retriever, or a call's config, says how many documents the retriever is asked for."""
METADATA_KEYS = (*RUN_KEYS, K)
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")
"""The beginnings of keys that ragguard and LangChain write into the metadata of a call."""


def kept_metadata(metadata: Mapping[str, Any], framework: str) -> dict[str, Any]:
    """Returns the metadata that the record of a run takes over from the metadata of its call."""
    warn_of_unknown(metadata, "metadata", METADATA_KEYS)
    entries = {key: value for key, value in metadata.items() if not key.startswith(_NOT_KEPT)}
    entries["framework"] = framework
    return entries


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
    names = UNNAMED
    trace: TraceContext | None = None
    started_ns = 0
    begun = False
    over = False
    waits = False
    """True while the run waits for a person's answer."""
    first_reply: Texts | None = None
    """The latest reply of a model before the first retrieval, for which it may have asked."""

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
        if self.first_reply is not None:
            self.recorder.model_replied(self.id, None, self.first_reply)

    def asked(self, key: object, given: object, path: CallPath) -> None:
        """Notes that a model is asked in the calls of the `path`, with its input in the framework's form. Of what was
        retrieved, those passages count as read that stand in the input."""
        self.recorder.model_asked(self.id, key, partial(content_in, given), path)

    def replied(self, key: object, reply: object) -> None:
        """Notes the reply of a model, in the framework's form."""
        if self.begun:
            self.recorder.model_replied(self.id, key, partial(content_in, reply))
        else:
            self.first_reply = partial(content_in, reply)

    def end(
        self, answer: str | None, status: Status = "ok", error: BaseException | None = None, *, question: str = "",
        trace: TraceContext | None = None, waits_for: str = "", names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Ends the run, once; other code that holds the run learns of the question and the answer. `waits_for` names
        what resumes a run that was interrupted; `names` are those in an output that has no answer."""
        if self.over:
            return
        self.over = self.owned
        if not self.begun:
            return
        if status == "cancelled" and self.waits:
            status = "interrupted"
        failed = self.owned and status == "error"
        answer = spoken(answer)
        if status == "ok" and not answer and names:
            NOTICES.once(
                "a run without an answer", _NO_ANSWER.format(self.id, ", ".join(map(repr, names[:12])))
            )
        end = RunEnded(
            self.id, status, answer, question, sub_questions=self.sub_questions, trace=trace,
            metadata={"error": describe(error)} if failed and error is not None else {}, waits_for=waits_for,
        )  # fmt: skip
        if self.owned:
            self.recorder.run_ended(end)
        else:
            self.recorder.run_noted(end)


_MOST_NAMES = 1024
"""The most names of tools that have given documents that are remembered."""


def tool_ended(
    recorder: Recorder, run_id: str, tool: str, result: ToolResult, *, begin: Callable[[], str],
    end: Callable[[Any, Unpack | None], None], step_id: str = "", splitter: Splitter | None = None,
    inside: Sequence[str] = (), status: Status = "error",
) -> bool:  # fmt: skip
    """Ends a call of a tool; returns False for one that has nothing to do with a retrieval.

    A declared tool is a retrieval; so is a call that gives documents. An empty list may be anything, and an error as
    well: these are a retrieval where the tool has given documents before. Where a tool fails after a retrieval inside,
    the model got the error and none of the passages.

    Args:
        recorder: The recorder of the run.
        run_id: The id of the run.
        tool: The name of the tool.
        result: What it gave, or its error.
        begin: Begins the call's step, and returns its id.
        end: Ends the step with documents, or with what `Unpack` takes apart.
        step_id: The id of the step of a declared tool, which has begun with the call.
        splitter: The splitter of a declared tool.
        inside: The ids of the steps that were made in the call.
        status: The status of a call that failed.
    """
    known = recorder.here.calls.retrieving
    if splitter is None and inside:
        if result.error is not None and status == "error":
            for inner_id in inside:
                recorder.step_amended(inner_id, run_id, error=result.error)
        return True
    is_unclear = result.error is not None or (result.any_list and not result.documents)
    if splitter is None and not (tool in known if is_unclear else result.documents is not None):
        recorder.here.calls.seen(TOOL, tool)
        return False
    if result.by_rule:
        NOTICES.once(
            f"tools by rule {tool}",
            f'tools="auto": what the tool {tool!r} returned looks like a search result, so its calls count as '
            f"retrievals. If they are none, name the tools that retrieve: tools=[...]. (Logged once a tool)",
        )
    if len(known) < _MOST_NAMES:
        known.add(tool)
    step_id = step_id or begin()
    if result.error is not None:
        recorder.step_failed(step_id, result.error, status)
    elif result.documents is not None or splitter is None:
        end(result.documents, None)
    else:
        end(result, lambda output: output.split(splitter))
    return True


def guard_decided(
    recorder: Recorder,
    run_id: str,
    verdict: Verdict,
    *,
    query: str = "",
    tool_call: str = "",
    among: Sequence[str] = (),
) -> bool:
    """Adds a guard's decision to the latest retrievals of an open run that found the passages it judged; returns False
    where none did. A decision in a call of a tool, or about its result, can only be about retrievals of that call:
    those with the id `tool_call`, or `among` the ids of steps that were made in it."""
    run = recorder.open_run(run_id)
    ended = [] if run is None else [(event.step, decision) for event, decision in run.model_calls.latest()]
    before = {step.id: decision for step, decision in ended}
    steps = [
        step
        for step, _ in ended
        if (not tool_call or step.metadata.get(TOOL_CALL) == tool_call) and (not among or step.id in among)
    ]
    # A tool may have rewritten the passages that were retrieved in it.
    chosen = steps_concerned(steps, verdict.judged, query) or (steps[:1] if tool_call else [])
    for step in chosen:
        further = decision_about(verdict, step.candidates, alone=len(chosen) == 1)
        decision = merged_decision(before[step.id] or step.decision, further)
        recorder.step_amended(step.id, run_id, decision.kept, decision)
    return bool(chosen)
