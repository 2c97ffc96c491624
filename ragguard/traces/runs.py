"""Makes runs of the spans of a trace: steps in order, what the model read of each, question and answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragguard.capture.events import StepAmended, StepEnded
from ragguard.capture.model_calls import ModelCalls
from ragguard.errors import InvalidInput
from ragguard.records import MODEL_CALLS, Passage, RetrievalStep, Run, SubStep, TraceContext
from ragguard.storage.files.runfile import run_of_data
from ragguard.telemetry.names import RUN_WHOLE, STEP_ID
from ragguard.traces.record import Record
from ragguard.traces.trace_spans import TraceSpan, json_body
from ragguard.traces.tree import Node, RunRoot, root_so_far, run_roots

REMARKS = "remarks"
"""Metadata key of a run: what of its trace was not understood, in sentences."""
EVALUATIONS = "evaluations"
"""Metadata key of a run: the evaluations by others that its spans report."""
SESSION = "session_id"
MOST_STEPS = 1000
_MOST_EVALUATIONS, _MOST_CALLS = 100, 200
_NO_DOCUMENTS = "the retrieval span {name!r} holds no documents under any known key, so it is no step"
_NO_TEXTS = "{count} documents of the span {name!r} are there without their texts, which cannot be judged"


@dataclass(slots=True)
class TracedRun:
    """A run that was read from a trace."""

    run: Run
    asked: bool = True
    """False where no span has the run's question, so that the first query stands in its place."""
    remarks: list[str] = field(default_factory=list)
    """The remarks on what of the trace was not understood, in sentences; the run's metadata have the same."""


def runs_of_trace(spans: Iterable[TraceSpan]) -> list[TracedRun]:
    """Returns the runs in the spans of one trace that retrieve, or would if their spans held what was retrieved."""
    found = (_run(root) for root in run_roots(spans))
    return [one for one in found if one.run.steps or one.remarks]


def run_so_far(spans: Iterable[TraceSpan]) -> TracedRun | None:
    """Returns the run in the spans of a trace that is not complete; None while it is in pieces or retrieves nothing."""
    root = root_so_far(spans)
    found = None if root is None else _run(root)
    return found if found is not None and found.run.steps else None


def _run(root: RunRoot) -> TracedRun:
    top, nodes = root.node, sorted(root.nodes, key=lambda node: node.record.span.started_ns)
    remarks: Counter[str] = Counter()
    if RUN_WHOLE in top.record.span.attributes:
        try:
            return TracedRun(_whole_run(top.record.span, nodes))
        except InvalidInput as error:
            remarks[f"the run in the span {top.record.span.name!r} is not read: {error}"] += 1
    steps = _steps(root, nodes, remarks)
    question, answer = _question(top, nodes, steps), _answer(top, nodes)
    run_id = f"{top.record.span.trace_id}-{top.record.span.span_id}"
    steps = _as_read(run_id, steps, nodes, answer)
    spans = [node.record.span for node in nodes]
    service = next((span.service for span in spans if span.service), "")
    said = [sentence if count == 1 else f"{sentence} ({count} times)" for sentence, count in remarks.items()]
    metadata: dict[str, Any] = {
        SESSION: next((node.record.session for node in (top, *nodes) if node.record.session), None),
        "service": service or None,
        "convention": next(
            (node.record.convention for node in (top, *nodes) if node.record.convention), None
        ),
        MODEL_CALLS: [node.record.call for node in nodes if node.record.call][:_MOST_CALLS] or None,
        EVALUATIONS: [one for node in nodes for one in node.record.evaluations][:_MOST_EVALUATIONS] or None,
        REMARKS: said or None,
    }
    run = Run(
        id=run_id,
        question=question or next((step.query for step in steps if step.query), ""),
        references=top.record.references,
        answer=answer or None,
        steps=[replace(step, run_id=run_id, index=index) for index, step in enumerate(steps)],
        status="error" if top.record.span.failed else "ok",
        metadata={name: value for name, value in metadata.items() if value is not None},
        name=top.record.span.name,
        started_ns=min(span.started_ns for span in spans),
        ended_ns=max(span.ended_ns for span in spans),
        trace=_place(top.record.span, foreign=False),
    )
    return TracedRun(run, bool(question), said)


def _whole_run(top: TraceSpan, nodes: Sequence[Node]) -> Run:
    """Returns the run that a RagGuard captured and sent, with the places of its spans in the trace."""
    run = run_of_data(json_body(str(top.attributes[RUN_WHOLE]).encode()), names_files=False)
    spans = (node.record.span for node in nodes if node.record.kind == "retrieval")
    places = {span.attributes.get(STEP_ID): _place(span, foreign=True) for span in spans}
    steps = [replace(step, trace=places.get(step.id)) for step in run.steps]
    return replace(run, steps=steps, trace=_place(top, foreign=False))


def _steps(root: RunRoot, nodes: Sequence[Node], remarks: Counter[str]) -> list[RetrievalStep]:
    """Returns the retrievals, each with those inside it as its sub-steps, in the order in which they began."""
    chosen: dict[Node, list[Node]] = {}
    within: dict[Node, Node] = {}
    for node in (one for top in _tops(root) for one in top.inside()):
        outer = within.get(node.parent) if node.parent is not None else None
        if outer is not None:
            within[node] = outer
            if node.record.kind == "retrieval" and node.record.documents is not None:
                chosen[outer].append(node)
        elif node.retrieves and len(chosen) < MOST_STEPS:
            within[node], chosen[node] = node, []
        elif node.record.kind == "retrieval" and not node.weight and not node.inside_weight:
            remarks[_NO_DOCUMENTS.format(name=node.record.span.name)] += 1
    ordered = sorted(chosen, key=lambda node: node.record.span.started_ns)
    steps: list[RetrievalStep] = []
    turn, latest = 0, None
    for node in ordered:
        if latest is not None and not _parallel(latest, node, nodes):
            turn += 1
        latest = node
        steps.append(_step(node, chosen[node], turn, remarks))
    _apply_choosers(steps, ordered, nodes)
    return steps


def _tops(root: RunRoot) -> list[Node]:
    """Returns the outermost nodes of a run: its root, or those beside each other under a root of no known kind."""
    members = set(root.nodes)
    return [node for node in root.nodes if node.parent not in members]


def _step(node: Node, inner: Sequence[Node], turn: int, remarks: Counter[str]) -> RetrievalStep:
    record, span = node.record, node.record.span
    documents = record.documents or []
    if bare := sum(not one.text for one in documents):
        remarks[_NO_TEXTS.format(count=bare, name=span.name)] += 1
    tool = (
        record
        if record.kind == "tool"
        else next((one.record for one in node.around() if one.record.kind == "tool"), None)
    )
    query = record.query
    if tool is not None and (asked := tool.query.strip()) and asked in query:
        query = asked  # what a framework's tool wrote around it is no part of the query
    failed = span.failed and record.documents is None
    found = {(one.id, one.text): one for part in inner for one in part.record.documents or ()}
    more = not found.keys() <= {(one.id, one.text) for one in documents}  # as after a reranker or a cut
    return RetrievalStep(
        id=span.span_id, turn=turn, query=query, passages=list(documents),
        candidates=list(found.values()) if more else list(documents),
        started_ns=span.started_ns, ended_ns=span.ended_ns, status="error" if failed else "ok",
        tool=tool.tool if tool is not None else "", error=span.message if failed else "",
        sub_steps=[
            SubStep(
                one.record.query, one.record.documents or [], name=one.record.span.name,
                started_ns=one.record.span.started_ns, ended_ns=one.record.span.ended_ns,
            )
            for one in inner
        ],
        trace=_place(span, foreign=True), metadata={"span": span.name}, k=_places(record, documents),
    )  # fmt: skip


def _places(record: Record, documents: Sequence[Passage]) -> int | None:
    """Returns the K that a span names; None where it names none, or fewer places than there are documents."""
    return record.k if record.k is not None and record.k >= len(documents) else None


def _parallel(before: Node, node: Node, nodes: Sequence[Node]) -> bool:
    """True for a retrieval that did not wait for the one before it: it began before that one ended, or both are the
    calls of different tools between which no model was asked."""
    first, second = before.record.span, node.record.span
    if second.started_ns < first.ended_ns:
        return True
    tools = [
        next((one for one in (step, *step.around()) if one.record.kind == "tool"), None)
        for step in (before, node)
    ]
    asked = [one.record.span.started_ns for one in nodes if one.record.kind == "model"]
    if None in tools or tools[0] is tools[1] or not asked:
        return False
    return not any(first.started_ns < at < second.started_ns for at in asked)


def _apply_choosers(steps: list[RetrievalStep], chosen: Sequence[Node], nodes: Sequence[Node]) -> None:
    """Leaves of each step's passages those that rerankers and guards kept of them."""
    of_step = dict(zip(chosen, range(len(steps)), strict=True))
    for node in nodes:
        record = node.record
        if record.kind not in ("rerank", "guard") or record.documents is None:
            continue
        around = next((of_step[one] for one in node.around() if one in of_step), None)
        kept = {_key(one) for one in record.documents}
        if around is not None:  # inside a retrieval, whose documents are what is left
            if record.given:
                steps[around] = replace(
                    steps[around],
                    candidates=list(record.given),
                    k=_places(record, record.documents) or len(kept),
                )
            continue
        given = None if record.given is None else {_key(one) for one in record.given}
        for index, step in enumerate(steps):
            if step.ended_ns > max(record.span.ended_ns, record.span.started_ns):
                continue
            left = [one for one in step.passages if _key(one) in kept]
            touched = left if given is None else [one for one in step.passages if _key(one) in given]
            if touched:
                amended = StepAmended(
                    "", step.id, [one for one in step.passages if one in left or one not in touched]
                )
                steps[index] = amended.applied_to(step)


def _key(passage: Passage) -> tuple[str, str]:
    return ("id", passage.id) if passage.id else ("text", passage.text)


def _as_read(
    run_id: str, steps: Sequence[RetrievalStep], nodes: Sequence[Node], answer: str
) -> list[RetrievalStep]:
    """Returns the steps with the passages that stand in the input of a later model call, by the rule of capture."""
    calls = ModelCalls()
    calls.answer = answer
    moments: list[tuple[int, int, Any]] = [
        (step.ended_ns, 0, step) for step in steps if step.status == "ok" and step.passages
    ]
    models = [node.record for node in nodes if node.record.kind == "model" and node.record.asked]
    moments += [(record.span.started_ns, 1, record) for record in models]
    for _, is_call, what in sorted(moments, key=lambda moment: moment[:2]):
        if not is_call:
            left = replace(what, candidates=what.passages)  # of what a reranker left, the model read some
            calls.retrieved(what.id, StepEnded(left, run_id))
        else:
            calls.asked(what.span.span_id, what.asked, _itself)
            if what.replied:
                calls.replied(what.span.span_id, what.replied, _itself)
    if not models:
        return list(steps)
    read = []
    for step in steps:
        if step.status == "ok" and step.passages:
            delivered = calls.read(step.id)
            step = StepAmended(run_id, step.id, delivered.passages, metadata=delivered.metadata).applied_to(
                step
            )
        read.append(step)
    return read


def _itself(texts: Any) -> Sequence[str]:
    return list(texts)


def _question(top: Node, nodes: Sequence[Node], steps: Sequence[RetrievalStep]) -> str:
    """Returns the question from the root; else that of the first pipeline that has one; else what a model was asked
    before anything was retrieved, as agents are; '' where none has one."""
    first = min((step.started_ns for step in steps), default=0)
    records = [top.record, *(node.record for node in nodes if node.record.kind in ("agent", "chain"))]
    records += [
        one.record
        for one in nodes
        if one.record.span.started_ns < first
        and (one.record.kind == "model" or (one.record.kind == "task" and one.record.asked))
    ]
    for record in records:
        if record.kind is not None and (found := (record.query or record.question).strip()):
            return found
    return ""


def _answer(top: Node, nodes: Sequence[Node]) -> str:
    """Returns the answer from the root; else of the last pipeline beside others, else of the last model call."""
    if top.record.kind in ("agent", "chain", "task") and top.record.answer.strip():
        return top.record.answer
    kinds = ("agent", "chain") if top.record.kind is None else ()
    for wanted in (kinds, ("model",)):
        ended = sorted(
            (one.record for one in nodes if one.record.kind in wanted), key=lambda one: one.span.ended_ns
        )
        for record in reversed(ended):
            if record.answer.strip():
                return record.answer
    return ""


def _place(span: TraceSpan, *, foreign: bool) -> TraceContext | None:
    """Returns the span's place in its trace; None where its ids are not OpenTelemetry's."""
    try:
        int(span.trace_id, 16), int(span.span_id, 16)
    except ValueError:
        return None
    return TraceContext(span.trace_id, span.span_id, foreign=foreign)
