"""The tree of LangChain's calls, read as runs and steps.

The first call of a tree is a run, or joins one; a retriever inside nothing else that retrieves
is a step. What a call's descendants need is in its place; the places belong to the recorder.
"""

from __future__ import annotations

import time
import weakref
from asyncio import Task
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from ragguard.capture.context import current_handle, current_run, is_paused
from ragguard.capture.decisions import joined
from ragguard.capture.faults import describe
from ragguard.capture.handle import references_of
from ragguard.capture.identity import Otherwise, RunIdentity
from ragguard.capture.open_runs import Unpack
from ragguard.capture.recorder import Recorder
from ragguard.capture.trace import trace_context
from ragguard.errors import InvalidInput
from ragguard.records import Decision, Passage, Status, TraceContext
from ragguard.runtime.notices import NOTICES
from ragguard_langchain.clock import Clock
from ragguard_langchain.formatting import as_formatted, given_documents, is_plain
from ragguard_langchain.graphs import node_clock, rank_of_call
from ragguard_langchain.lone import LIMIT, LoneRetrieval
from ragguard_langchain.messages import NOTHING, Answer, Taken, unpacked
from ragguard_langchain.options import (
    KEYS,
    NAME,
    NO_OPTIONS,
    REFERENCES,
    RESUME,
    RUN_ID,
    CallOptions,
    warn_of_unknown,
)
from ragguard_langchain.places import Place, Places
from ragguard_langchain.scopes import RunNotes, Scope, ToolCall
from ragguard_langchain.spans import span_of
from ragguard_langchain.stack import Where, batch_around, given_up, here
from ragguard_langchain.verdicts import EndedRetrieval, VerdictReport, concerned

GONE_SECONDS = 1.0
"""How long a task must have been over before what it left open counts as cancelled."""
REMEMBERED_THREADS = 1024
"""How many threads are remembered that were interrupted before their first retrieval."""
REMEMBERED = 64
"""How many of a run's latest retrievals a guard may still speak of."""
_SAID = frozenset(KEYS)
THREAD = "thread_id"
"""LangGraph's metadata key of what is resumed after an interrupt."""
_JOINS = _SAID | {THREAD}
_NOT_KEPT = ("ragguard_", "ls_", "langgraph_", "__")


_innermost: ContextVar[Place[Scope] | LoneRetrieval | None] = ContextVar(
    "ragguard_langchain_retrieval", default=None
)
"""The retrieval that began last in this context: some wrappers call their inner retriever without telling
LangChain that it is inside. Never reset, since the end is reported in another context; good only while open."""
_trees: weakref.WeakSet[CallTree] = weakref.WeakSet()


class CallTree:
    """Puts calls in their places, and opens and closes runs and steps on the way. One per recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.places: Places[Scope] = Places()
        self.lone: dict[UUID | None, LoneRetrieval] = {}
        self._found: dict[str, list[EndedRetrieval]] = {}
        """The latest retrievals of the runs that trees have joined."""
        self._interrupted: dict[str, RunNotes] = {}
        """By thread, what calls were asked that were interrupted before they retrieved anything, and so are no run."""
        self._clocks: dict[str, Clock] = {}
        """The clocks of those runs."""
        self._answers: Counter[str] = Counter()
        """How many answers those runs were given."""
        self.tools_called: Counter[str] = Counter()
        self.retrieving: set[str] = set()
        """The undeclared tools that have given documents: where one of these fails, a retrieval has failed."""
        _trees.add(self)

    @classmethod
    def of(cls, recorder: Recorder) -> CallTree:
        """The recorder's one tree, however many handlers see the calls."""
        tree = recorder.followers.setdefault("langchain", cls(recorder))
        assert isinstance(tree, cls)
        return tree

    def root(
        self,
        id: UUID,
        question: str,
        metadata: Mapping[str, Any],
        name: str,
        *,
        resumes: bool = False,
        call_id: str = "",
        where: Where | None = None,
        holds: bool = False,
        options: CallOptions = NO_OPTIONS,
        inputs: object = None,
    ) -> Place[Scope]:
        """The first call of a tree: joins the run around it or the one its metadata names, goes on with one that
        was interrupted, or may become a run of its own: with its first step, or when its metadata says so.

        `call_id` is the tool call's; `where` is given for a call that says nothing when it is cancelled. A run that it
        joins ends after it, where it `holds` that: one that always reports its end, a stream too."""
        run = RunNotes(question, name, metadata, options=options, inputs=inputs)
        warn_of_unknown(metadata)
        if is_paused():
            run.opened = True  # for good: what it does after the pause is not recorded either
        run_id, sampled = self._joined(run, resumes)
        if not run_id:
            run.identity = self._identity(run, id, resumes=resumes or bool(metadata.get(RESUME)))
            run_id = str(id) if run.identity is None else run.identity.asked
            sampled = self.recorder.samples(run_id) or (
                run.identity is not None and run.identity.otherwise == "drop"
            )
            run.trace = trace_context()
        place = Place(id, run_id, Scope(run), self._clock(id, run_id, run, call_id, where))
        place.sampled = sampled and not is_paused()
        if holds and not run.owner:
            run.holds = True
            self.recorder.run_held(run_id)
        place.started_ns = time.time_ns()
        self.places.plant(place, owner=run.owner)
        if not run.opened and (run.resumed or not _SAID.isdisjoint(metadata)):
            self._open(place)
        return place

    def retrieves(self, place: Place[Scope], query: str) -> None:
        """Begins the run of a call with its first retrieval."""
        run = place.notes.run
        if is_paused():
            return
        if not run.opened:
            self._open(place.root or place)
        if not run.first_query:
            run.first_query = query

    def place(self, id: UUID | None) -> Place[Scope] | None:
        """The open call of that id; asking for it is something that happens in it."""
        place = self.places.get(id)
        if place is None and id in self.lone:
            return self._unfold(id)
        return place

    def stands_alone(self, metadata: Mapping[str, Any] | None) -> bool:
        """True for an outermost call that joins no run: none is around it, and its metadata names none."""
        return (current_handle.get() is None or current_run(self.recorder) is None) and not (
            metadata and RUN_ID in metadata
        )

    def begin_lone(
        self, id: UUID, query: str, name: str, metadata: Mapping[str, Any] | None, options: CallOptions
    ) -> bool:
        """A retriever that is the first call and a run of its own: the recorder hears of it when it is over, since
        a run that is one retrieval is recorded as a whole. False where it is a part of something, or is to be recorded
        at once."""
        if is_paused():
            return True
        if (
            not (self.recorder.samples_all or self.recorder.samples(str(id)))
            or (current_handle.get() is not None and current_run(self.recorder) is not None)
            or (metadata and not _JOINS.isdisjoint(metadata))
        ):
            return False
        self.lone[id] = one = LoneRetrieval(id, query, name, metadata, options)
        _innermost.set(one)
        if len(self.lone) > LIMIT:
            self.lone.pop(next(iter(self.lone)), None)
        return True

    def end_lone(self, one: LoneRetrieval, taken: Any) -> None:
        """Such a retriever is over, and nothing happened in it."""
        one.over = True
        trace = span_of(one.id, retrieval=True) or one.trace
        self.recorder.run_made(
            one.id,
            one.query,
            taken,
            one.options.unpack,
            one.name,
            partial(_kept, one.metadata or {}),
            one.started_ns,
            trace,
        )

    def _unfold(self, id: UUID | None) -> Place[Scope] | None:
        """Something happens in such a retriever: it becomes a run with an open step."""
        one = self.lone.pop(id, None)
        if one is None:
            return self.places.get(id)
        metadata = one.metadata or {}
        place = Place(
            one.id,
            str(one.id),
            Scope(RunNotes(one.query, one.name, metadata, trace=one.trace, options=one.options)),
        )
        place.started_ns, place.task, place.began_in = one.started_ns, one.task, one.began_in
        self.places.plant(place, owner=True)
        self.begin_step(place, one.query, one.name, metadata)
        return place

    def pass_over(self, place: Place[Scope]) -> None:
        """A retrieval of an unsampled run: that run is counted, once."""
        if not place.notes.run.opened:
            self._open(place)

    def _clock(self, id: UUID, run_id: str, run: RunNotes, call_id: str, where: Where | None) -> Clock:
        """The clock of a tree's first call; behind what the run had before, where it has had something."""
        if run.owner:
            return Clock(self.recorder.next_turn(run_id) if run.resumed else 0)
        around = self._runs_clock(run_id)
        parallel = ("calls", around.messages) if call_id else batch_around()
        return around.inside(id, parallel=parallel, where=where)

    def _runs_clock(self, run_id: str) -> Clock:
        """The clock of a run that trees join."""
        clock = self._clocks.setdefault(run_id, Clock())
        clock.reach(self.recorder.next_turn(run_id))
        return clock

    def model_called(self, parent_id: UUID | None) -> None:
        """A model was asked for a message, in the call with that id."""
        place = self.places.get(parent_id)
        if place is not None:
            place.clock.messages += 1
            call = place.notes.tool
            if call is not None and call.found:
                call.read = True
        elif parent_id is None and (handle := current_run(self.recorder)) is not None:
            self._runs_clock(handle.id).messages += 1

    def child(
        self,
        parent: Place[Scope],
        id: UUID,
        metadata: Mapping[str, Any] | None,
        tags: Sequence[str] | None,
        *,
        call_id: str = "",
        where: Where | None = None,
    ) -> Place[Scope]:
        """A call inside another one; see `root` for `call_id` and `where`. All calls of an unsampled run share the
        place of its root."""
        root = parent.root or parent
        if not root.sampled:
            self.places.grow(id, root, root)
            return root
        scope = parent.notes
        node = metadata.get("langgraph_checkpoint_ns", "") if metadata else ""
        if metadata and node and node != scope.graph_node:
            scope = Scope(scope.run, node, scope.tool)
            clock = node_clock(parent.clock, id, metadata)
        elif call_id:
            rank = rank_of_call(parent.inputs, call_id)
            clock = parent.clock.inside(id, parallel=("calls", parent.clock.messages), rank=rank)
        else:
            tag = next((tag for tag in tags or () if tag.startswith(("map:key:", "seq:step:"))), "")
            clock = parent.clock.inside(
                id,
                parallel="map" if tag.startswith("map") else None if tag else batch_around(),
                in_order=tag.startswith("seq"),
                where=where,
            )
        place = Place(id, parent.run_id, scope, clock)
        place.root, place.tool, place.step_id = root, parent.tool, parent.step_id
        self.places.grow(id, place, root)
        return place

    def around(self, query: str) -> Place[Scope] | None:
        """The open retrieval for the same query that the code at hand seems to be inside of."""
        inner = _innermost.get()
        while inner is not None:
            if inner.query == query and not inner.over and not given_up(inner.id, inner.began_in):
                place = self.place(inner.id)
                if place is not None:
                    return place
            inner = inner.around
        return None

    def begin_step(
        self,
        place: Place[Scope],
        query: str,
        name: str,
        metadata: Mapping[str, Any] | None,
        around: Place[Scope] | None = None,
        *,
        started_ns: int = 0,
    ) -> None:
        """Opens the step that a call is; a part where it is inside another one. A tool call has no `name` here."""
        scope = place.notes
        run = scope.run
        whole = place.root is None and run.owner and not run.opened
        self.retrieves(place, query)
        about: dict[str, Any] = {"retriever": name} if name else {}
        if metadata:
            if "langgraph_node" in metadata:
                about["langgraph_node"] = metadata["langgraph_node"]
            if "lc_agent_name" in metadata:
                about["agent"] = metadata["lc_agent_name"]
        if scope.tool is not None and scope.tool.id:
            about["tool_call_id"] = scope.tool.id
        step_id = place.run_id if whole else str(place.id)
        trace = span_of(place.id, retrieval=bool(name))
        if trace is None and not name and scope.tool is not None:
            trace = scope.tool.trace
        turn = None
        if not place.step_id:
            turn = place.clock.tick()
            run.asked(query, turn, in_tool=scope.tool is not None)
        self.recorder.step_started(
            step_id, place.run_id, query, within=place.step_id, perhaps_within=around.step_id if around else "",
            tool=place.tool, name=name, turn=turn, order=place.clock.order, metadata=about, started_ns=started_ns,
            trace=trace or (run.trace if whole else "here"),
        )  # fmt: skip
        place.outer_step, place.step_id, place.is_step = place.step_id, step_id, True
        place.query, place.around, place.began_in = query, around, place.began_in or here()
        _innermost.set(place)

    def end_step(self, place: Place[Scope], taken: Taken, trace: TraceContext | None = None) -> None:
        """Closes the step that a call is, with the documents that it gave."""
        candidates, decision = self._judged(place, taken)
        if (place.root is not None or not place.notes.run.owner) and not place.outer_step:
            self._remember(place, taken, candidates, decision)
        self.recorder.step_ended(
            place.step_id,
            taken,
            unpack=place.notes.run.options.unpack,
            candidates=candidates,
            decision=decision,
            trace=trace,
        )

    def end_text_step(
        self, place: Place[Scope], text: object, splitter: Unpack, trace: TraceContext | None = None
    ) -> None:
        """Closes the step that a tool's call is, with the text that it gave, or what holds it."""
        candidates, decision = self._judged(place, None)
        self._remember(place, None, candidates, decision)
        self.recorder.step_ended(
            place.step_id, text, unpack=splitter, candidates=candidates, decision=decision, trace=trace
        )

    def formatted(self, place: Place[Scope], text: str) -> None:
        """Documents were made into one text, for a model to read: of each retrieval that is what the model got.

        Where the application says by `text_of` what a model reads, that holds.
        """
        documents, run = given_documents(place.inputs), place.notes.run
        if not documents or not place.sampled or run.options.text_of is not None or is_plain(text, documents):
            return
        given = [(one.id or "", one.page_content) for one in documents]
        texts = {content for _, content in given}
        for found in run.found:
            if found.taken and found.decision is None:
                passages = unpacked(found.taken)
                if any(passage.text in texts for passage in passages):
                    self.recorder.step_amended(
                        found.step_id, place.run_id, partial(as_formatted, text, given, passages)
                    )

    def decided(self, place: Place[Scope], report: VerdictReport) -> None:
        """A guard decided, in that call: about the retrieval around it, else about those that have ended; what
        nobody saw retrieved was retrieved by other means, and is a step now."""
        if report.was_recorded_by(self) or not report.verdict.judged:
            return
        run = place.notes.run
        if place.step_id:
            run.verdicts.setdefault(place.step_id, []).append(report.verdict)
            return
        about = concerned(run.found, report)
        for found in about:
            decision = found.decided(report, alone=len(about) == 1)
            self.recorder.step_amended(found.step_id, place.run_id, decision.kept, decision)
        if not about:
            self._retrieved_by_other_means(place, report)

    def decided_outside(self, report: VerdictReport) -> None:
        """A guard decided, in no call at all: in code of the user's own, inside the run around it."""
        handle = current_run(self.recorder)
        if handle is not None and handle.sampled:
            run = RunNotes("", "", {}, owner=False, opened=True, found=self._found.setdefault(handle.key, []))
            self.decided(Place(uuid4(), handle.key, Scope(run), self._runs_clock(handle.key)), report)

    def _retrieved_by_other_means(self, around: Place[Scope], report: VerdictReport) -> None:
        scope, decision = around.notes, report.verdict.decision
        call = scope.tool
        if report.tool:
            call = ToolCall(report.tool, report.query, report.call, report.started_ns)
        id, clock = uuid4(), around.clock
        if report.call:
            clock = clock.inside(id, parallel=("calls", clock.messages))
        place = Place(id, around.run_id, Scope(scope.run, scope.graph_node, call), clock)
        place.root, place.tool = around.root or around, report.tool or around.tool
        self.begin_step(place, report.query, "", None, started_ns=report.started_ns or decision.started_ns)
        self._remember(place, None, report.verdict.judged, decision)
        self.recorder.step_ended(
            place.step_id, decision.kept, candidates=report.verdict.judged, decision=decision
        )

    def _remember(
        self,
        place: Place[Scope],
        taken: Taken | None,
        candidates: list[Passage] | None,
        decision: Decision | None,
    ) -> None:
        """Keeps a retrieval for the guards that come behind it."""
        scope, found = place.notes, place.notes.run.found
        call = scope.tool.id if scope.tool is not None else ""
        found.append(EndedRetrieval(place.step_id, place.query, call, taken, candidates, decision))
        del found[:-REMEMBERED]

    def _judged(
        self, place: Place[Scope], taken: Taken | None
    ) -> tuple[list[Passage] | None, Decision | None]:
        """What a retrieval had before the guards inside it, and what those decided. A tool's string (None) is
        taken apart later; until then it is what the guards let through."""
        run = place.notes.run
        verdicts = run.verdicts.pop(place.step_id, None) if run.verdicts else None
        if not verdicts:
            return None, None
        if place.outer_step:
            parts = [replace(verdict, part=True) for verdict in verdicts]
            run.verdicts.setdefault(place.outer_step, []).extend(parts)
        if taken is not None:
            return joined(verdicts, run.options.unpack(taken))
        if len(verdicts) == 1:
            return verdicts[0].judged, verdicts[0].decision
        return joined(verdicts, [passage for verdict in verdicts for passage in verdict.decision.kept])

    def end_root(
        self,
        root: Place[Scope],
        answer: Answer = NOTHING,
        question: str = "",
        status: Status = "ok",
        error: BaseException | None = None,
    ) -> None:
        """Closes a tree: with it its run, unless that is somebody else's to end or waits to be resumed."""
        run = root.notes.run
        for left in self.places.fell(root):
            if left.is_step:
                self.recorder.step_failed(
                    left.step_id, status="interrupted" if run.interrupted else "cancelled"
                )
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
            about.pop("answer_content", None)  # of the call of the tool that waits
            self.recorder.run_ended(
                root.run_id, None, "interrupted", question=question, metadata=about, trace=span_of(root.id),
                waits_for=run.thread,
            )  # fmt: skip
            return
        if error is not None and status == "error":
            about["error"] = describe(error)
        if run.interrupted and status == "ok":
            status = "interrupted"
        self.recorder.run_ended(
            root.run_id, answer.text, status, question=question, metadata=about, trace=span_of(root.id)
        )

    def _note(self, root: Place[Scope], question: str, answer: Answer, about: dict[str, Any]) -> None:
        """Keeps what a tree says of a run that somebody else ends; of several answers the last one counts."""
        if answer.text:
            self._answers[root.run_id] += 1
            if (count := self._answers[root.run_id]) > 1:
                about["answers"] = count
                NOTICES.once(
                    "several answers in a run",
                    f"run {root.run_id!r} got more than one answer inside `with rg.run(...)`; the last one counts. "
                    "Call run.answered(...) to name the answer. (Logged once a process)",
                )
        self.recorder.run_noted(root.run_id, question, answer.text, about)
        if root.notes.run.holds:
            self.recorder.run_released(root.run_id)

    def _joined(self, run: RunNotes, resumes: bool) -> tuple[str, bool]:
        """The open run that a tree is a part of, and whether it is sampled; '' for none."""
        handle = current_run(self.recorder)
        if handle is not None:
            run.owner, run.opened, run.found = False, True, self._found.setdefault(handle.key, [])
            return handle.key, handle.sampled
        named = run.metadata.get(RUN_ID)
        resumes = resumes or bool(run.metadata.get(RESUME))
        if named and self.recorder.knows(str(named)) and (resumes or self.recorder.is_handles(str(named))):
            run.owner, run.opened, run.found = False, True, self._found.setdefault(str(named), [])
            return str(named), self.recorder.samples(str(named))
        if thread := run.metadata.get(THREAD):
            run.thread = f"langgraph:{thread}"
        return "", True

    def _identity(self, run: RunNotes, id: UUID, *, resumes: bool) -> RunIdentity | None:
        """What a tree's run is to be, where that is more than a run of its own: it has a name, or continues one."""
        before = self._interrupted.pop(run.thread, None) if run.thread else None
        if before is not None and resumes:
            run.question, run.metadata = run.question or before.question, {**before.metadata, **run.metadata}
        named, thread = run.metadata.get(RUN_ID), run.thread if resumes else ""
        if named:
            identity = self.recorder.claim(str(named), resumes=resumes)
            identity.thread = thread
        elif thread:
            otherwise: Otherwise = "begin with a step" if self.recorder.samples_all else "drop"
            identity = RunIdentity(str(id), thread=thread, otherwise=otherwise)
        else:
            return None
        run.resumed = identity.continues
        return identity

    def _open(self, root: Place[Scope]) -> None:
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
            metadata=_kept(run.metadata), started_ns=root.started_ns, trace=span_of(root.id) or run.trace,
            identity=run.identity,
        )  # fmt: skip

    def run_closed(self, run_id: str) -> None:
        """Lets go of a run's calls."""
        self.places.forget(run_id)
        self._found.pop(run_id, None)
        self._clocks.pop(run_id, None)
        self._answers.pop(run_id, None)

    def sweep(self, ttl: float) -> None:
        """Ends what was cancelled without a word, and what is too old."""
        now = time.time_ns()
        for one in list(self.lone.values()):
            over = one.task is not None and _is_over(one.task)
            if over:
                self.place(one.id)  # as such it may have another moment
            elif now - one.started_ns >= ttl * 1e9 and (old := self.place(one.id)) is not None:
                self.end_root(old, status="abandoned")
        for root in self.places.roots():
            if root.task is not None and _is_over(root.task):
                root.gone_ns = root.gone_ns or now
                if now - root.gone_ns >= GONE_SECONDS * 1e9:
                    self.end_root(root, status="cancelled")
            elif now - root.started_ns >= ttl * 1e9 and not self.recorder.knows(root.run_id):
                self.end_root(root, status="abandoned")

    def forget(self) -> None:
        """Lets go of everything."""
        self.places.clear()
        self.lone.clear()
        self._found.clear()
        self._clocks.clear()
        self._interrupted.clear()
        self._answers.clear()


def open_retrieval() -> tuple[CallTree, Place[Scope]] | None:
    """The open retrieval that began last in the caller's context, and its tree."""
    inner = _innermost.get()
    while inner is not None:
        if not inner.over and not given_up(inner.id, inner.began_in):
            for tree in list(_trees):
                place = tree.place(inner.id)
                if place is not None:
                    return tree, place
        inner = inner.around
    return None


def _kept(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's record keeps of its call's metadata."""
    warn_of_unknown(metadata)
    kept = {key: value for key, value in metadata.items() if not key.startswith(_NOT_KEPT)}
    kept["framework"] = "langchain"
    return kept


def _is_over(reference: weakref.ref[Task[Any]]) -> bool:
    task = reference()
    return task is None or task.done()
