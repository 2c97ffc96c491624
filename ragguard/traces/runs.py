"""Makes runs of the spans of a trace: steps in order, what the model read of each, question and answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ragguard.capture.events import Delivered, StepAmended, StepEnded
from ragguard.capture.model_calls import DELIVERED, UNKNOWN, ModelCalls
from ragguard.capture.shapes import as_it_is
from ragguard.errors import InvalidInput
from ragguard.records import ANNOTATIONS, MODEL_CALLS, Passage, RetrievalStep, Run, SubStep, TraceContext
from ragguard.storage.files.jsonl import json_of_line
from ragguard.storage.files.runfile import run_of_data
from ragguard.telemetry.names import RUN_WHOLE, STEP_ID
from ragguard.traces.annotations import annotations_of, is_of_person
from ragguard.traces.record import Record
from ragguard.traces.spans import Data, TraceSpan
from ragguard.traces.tree import RunRoot, root_so_far, run_roots

REMARKS = "remarks"
"""Metadata key of a run: what of its trace was not understood, in sentences."""
EVALUATIONS = "evaluations"
"""Metadata key of a run: the evaluations by others that its spans report."""
EVALUATION = "gen_ai.evaluation.result"
"""The event in which OpenTelemetry's conventions report an evaluation."""
SESSION = "session_id"
MOST_STEPS = 1000
_MOST_CALLS = 200
_NO_DOCUMENTS = "the retrieval span {name!r} holds no documents under any known key, so it is no step"
_TOO_MANY = f"a retrieval beyond the first {MOST_STEPS:,} of a run is left out"
_NO_TEXTS = "{count} documents of the span {name!r} are there without their texts, which cannot be judged"


@dataclass(slots=True)
class TracedRun:
    """A run that was read from a trace."""

    run: Run
    asked: bool = True
    """False where no span has the run's question, so that the first query stands in its place."""
    remarks: list[str] = field(default_factory=list)
    """The remarks on what of the trace was not understood, in sentences; the run's metadata have the same."""


def runs_of_trace(spans: Iterable[TraceSpan], tools: Collection[str] = ()) -> list[TracedRun]:
    """Returns the runs in the spans of one trace that retrieve, or would if their spans held what was retrieved; the
    results of `tools` are passages whatever their form."""
    roots = run_roots(spans := list(spans), tools)
    inside = {record.span.span_id for root in roots for record in root.records}
    above = [one for span in spans if span.span_id not in inside for one in annotations_of(span)]
    found = (_run(root, above if len(roots) == 1 else ()) for root in roots)
    return [one for one in found if one.run.steps or one.remarks]


def run_so_far(spans: Iterable[TraceSpan], tools: Collection[str] = ()) -> TracedRun | None:
    """Returns the run in the spans of a trace that is not complete; None while it is in pieces or retrieves nothing."""
    root = root_so_far(spans, tools)
    found = None if root is None else _run(root)
    return found if found is not None and found.run.steps else None


def _run(root: RunRoot, above: Iterable[Data] = ()) -> TracedRun:
    """Returns the run of a root, with the annotations of spans `above` it, such as that of an HTTP request."""
    top, records = root.top, sorted(root.records, key=lambda record: record.span.started_ns)
    remarks: Counter[str] = Counter()
    if RUN_WHOLE in top.span.attributes:
        try:
            return TracedRun(_whole_run(top.span, records))
        except InvalidInput as error:
            remarks[f"the run in the span {top.span.name!r} is not read: {error}"] += 1
    steps = _steps(root, records, remarks)
    question, answer = _question(top, records, steps), _answer(top, records)
    run_id = f"{top.span.trace_id}-{top.span.span_id}"
    steps = _as_read(run_id, steps, records, answer)
    said = [sentence if count == 1 else f"{sentence} ({count} times)" for sentence, count in remarks.items()]
    annotations = [
        *map(dict, above),
        *(dict(one) for record in records for one in annotations_of(record.span)),
    ]
    metadata: dict[str, Any] = {
        SESSION: next((record.session for record in (top, *records) if record.session), None),
        "service": next((record.span.service for record in records if record.span.service), None),
        "convention": next((record.convention for record in (top, *records) if record.convention), None),
        MODEL_CALLS: [record.call for record in records if record.call][:_MOST_CALLS],
        EVALUATIONS: [
            *(
                event.attributes
                for record in records
                for event in record.span.events
                if event.name == EVALUATION
            ),
            *(one for one in annotations if not is_of_person(one)),
        ][:_MOST_CALLS],
        ANNOTATIONS: [one for one in annotations if is_of_person(one)][:_MOST_CALLS],
        REMARKS: said,
    }
    run = Run(
        id=run_id,
        question=question or next((step.query for step in steps if step.query), ""),
        answer=answer or None,
        steps=[replace(step, run_id=run_id, index=index) for index, step in enumerate(steps)],
        status="error" if top.span.failed else "ok",
        metadata={name: value for name, value in metadata.items() if value},
        name=top.name or top.span.name,
        started_ns=min(record.span.started_ns for record in records),
        ended_ns=max(record.span.ended_ns for record in records),
        trace=_place(top.span, foreign=False),
    )
    return TracedRun(run, bool(question), said)


def _whole_run(top: TraceSpan, records: Sequence[Record]) -> Run:
    """Returns the run that a RagGuard captured and sent, with the places of its spans in the trace."""
    run = run_of_data(json_of_line(str(top.attributes[RUN_WHOLE]).encode()))
    spans = (record.span for record in records if record.kind == "retrieval")
    places = {span.attributes.get(STEP_ID): _place(span, foreign=True) for span in spans}
    steps = [replace(step, trace=places.get(step.id)) for step in run.steps]
    return replace(run, steps=steps, trace=_place(top, foreign=False))


def _steps(root: RunRoot, records: Sequence[Record], remarks: Counter[str]) -> list[RetrievalStep]:
    """Returns the retrievals, each with those inside it as its sub-steps, in the order in which they began."""
    chosen: dict[Record, list[Record]] = {}
    within: dict[Record | None, Record] = {}
    for record in root.records:
        outer = within.get(record.parent)
        if outer is not None:
            within[record] = outer
            if record.kind == "retrieval" and record.documents is not None:
                chosen[outer].append(record)
        elif record.retrieves and len(chosen) >= MOST_STEPS:
            remarks[_TOO_MANY] += 1
        elif record.retrieves:
            within[record], chosen[record] = record, []
        elif record.kind == "retrieval" and not record.weight and not record.inside_weight:
            remarks[_NO_DOCUMENTS.format(name=record.span.name)] += 1
    ordered = sorted(chosen, key=lambda record: record.span.started_ns)
    models = [record.span.started_ns for record in records if record.kind == "model"]
    steps: list[RetrievalStep] = []
    for before, record in zip([None, *ordered], ordered, strict=False):
        turn = steps[-1].turn if steps else 0
        if before is not None and not _parallel(before, record, models):
            turn += 1
        steps.append(_step(record, chosen[record], turn, remarks))
    _apply_choosers(steps, ordered, records)
    return steps


def _step(record: Record, inner: Sequence[Record], turn: int, remarks: Counter[str]) -> RetrievalStep:
    span, documents, query = record.span, record.documents or [], record.query
    if bare := sum(not one.text for one in documents):
        remarks[_NO_TEXTS.format(count=bare, name=span.name)] += 1
    tool = record.tool_call
    if tool is not None and (asked := tool.query.strip()) and asked in query:
        query = asked  # what a framework's tool wrote around it is no part of the query
    failed = span.failed and record.documents is None
    found = {(one.id, one.text): one for part in inner for one in part.documents or ()}
    more = not found.keys() <= {(one.id, one.text) for one in documents}  # as after a reranker or a cut
    return RetrievalStep(
        id=span.span_id, turn=turn, query=query, passages=list(documents),
        candidates=list(found.values()) if more else list(documents),
        started_ns=span.started_ns, ended_ns=span.ended_ns, status="error" if failed else "ok",
        tool="" if tool is None else tool.tool, error=span.message if failed else "",
        sub_steps=[
            SubStep(
                part.query, part.documents or [], name=part.span.name,
                started_ns=part.span.started_ns, ended_ns=part.span.ended_ns,
            )
            for part in inner
        ],
        trace=_place(span, foreign=True), metadata={"span": span.name}, k=record.k,
    )  # fmt: skip


def _parallel(before: Record, record: Record, models: Sequence[int]) -> bool:
    """True for a retrieval that did not wait for the one before it: it began before that one ended, or both are the
    calls of different tools between which no model was asked."""
    first, second = before.span, record.span
    if second.started_ns < first.ended_ns:
        return True
    tools = before.tool_call, record.tool_call
    if None in tools or tools[0] is tools[1] or not models:
        return False
    return not any(first.started_ns < at < second.started_ns for at in models)


def _apply_choosers(steps: list[RetrievalStep], chosen: Sequence[Record], records: Sequence[Record]) -> None:
    """Leaves of each step's passages those that rerankers and guards kept of them."""
    of_step = dict(zip(chosen, range(len(steps)), strict=True))
    for record in records:
        if record.kind not in ("rerank", "guard") or record.documents is None:
            continue
        around = next((of_step[one] for one in record.around() if one in of_step), None)
        kept = {_key(one) for one in record.documents}
        if around is not None:  # inside a retrieval, whose documents are what is left
            if record.given:
                steps[around] = replace(steps[around], candidates=list(record.given), k=record.k or len(kept))
            continue
        given = None if record.given is None else {_key(one) for one in record.given}
        for index, step in enumerate(steps):
            if step.ended_ns > max(record.span.ended_ns, record.span.started_ns):
                continue
            touched = {_key(one) for one in step.passages} & (kept if given is None else given)
            if touched:
                left = [one for one in step.passages if _key(one) in kept or _key(one) not in touched]
                steps[index] = StepAmended("", step.id, left).applied_to(step)


def _key(passage: Passage) -> tuple[str, str]:
    return ("id", passage.id) if passage.id else ("text", passage.text)


def _as_read(
    run_id: str, steps: Sequence[RetrievalStep], records: Sequence[Record], answer: str
) -> list[RetrievalStep]:
    """Returns the steps with the passages that stand in the input of a later model call, by the rule of capture."""
    calls = ModelCalls()
    found = [step for step in steps if step.status == "ok" and step.passages]
    models = [record for record in records if record.kind == "model"]
    if not models:
        return list(steps)
    paths = {one.span.span_id: tuple(around.span.span_id for around in one.around())[::-1] for one in records}
    moments: list[tuple[int, int, Any]] = [(step.ended_ns, 0, step) for step in found]
    moments += [(record.span.started_ns, 1, record) for record in models]
    for _, is_call, what in sorted(moments, key=lambda moment: moment[:2]):
        if not is_call:
            left = replace(what, candidates=what.passages)  # of what a reranker left, the model read some
            calls.retrieved(what.id, StepEnded(left, run_id), path=paths.get(what.id, ()))
        elif what.prompt is not None:
            calls.asked(what.span.span_id, partial(as_it_is, what.prompt), paths[what.span.span_id])
            if what.reply is not None:
                calls.replied(what.span.span_id, partial(as_it_is, what.reply))
    calls.ended(answer)
    unseen = max((record.span.started_ns for record in models if record.prompt is None), default=-1)
    return [_amended(run_id, step, calls, unseen) if step in found else step for step in steps]


def _amended(run_id: str, step: RetrievalStep, calls: ModelCalls, unseen: int) -> RetrievalStep:
    """Returns a step with what the model read of it. Where the last call whose input no span holds, which began at
    `unseen`, came after the step, what was not read elsewhere is unknown."""
    read = calls.read(step.id)
    if step.ended_ns <= unseen and (read.passages is None or len(read.passages) < len(step.passages)):
        read = Delivered(None, {**read.metadata, DELIVERED: UNKNOWN})
    return StepAmended(run_id, step.id, read.passages, metadata=read.metadata).applied_to(step)


def _question(top: Record, records: Sequence[Record], steps: Sequence[RetrievalStep]) -> str:
    """Returns the question from the root; else that of the first pipeline that has one; else what a model was asked
    before anything was retrieved, as agents are; '' where none has one."""
    first = min((step.started_ns for step in steps), default=0)
    asking = [top, *(record for record in records if record.kind in ("agent", "chain"))]
    asking += [
        record
        for record in records
        if record.span.started_ns < first
        and (record.kind == "model" or (record.kind == "task" and record.asked))
    ]
    return next(filter(None, ((one.query or one.question).strip() for one in asking)), "")


def _answer(top: Record, records: Sequence[Record]) -> str:
    """Returns the answer from the root; else of the last pipeline beside others, else of the last model call."""
    if top.kind in ("agent", "chain", "task") and top.answer.strip():
        return top.answer
    ended = sorted(records, key=lambda record: record.span.ended_ns, reverse=True)
    for kinds in (("agent", "chain") if top.kind is None else (), ("model",)):
        for record in ended:
            if record.kind in kinds and record.answer.strip():
                return record.answer
    return ""


def _place(span: TraceSpan, *, foreign: bool) -> TraceContext | None:
    """Returns the span's place in its trace; None where its ids are not OpenTelemetry's."""
    try:
        int(span.trace_id, 16), int(span.span_id, 16)
    except ValueError:
        return None
    return TraceContext(span.trace_id, span.span_id, foreign=foreign)
