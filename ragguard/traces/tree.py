"""The spans of one trace as a tree of records, and the roots in it that are runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ragguard.traces.record import Record, read_span
from ragguard.traces.spans import TraceSpan


class RunRoot(NamedTuple):
    """A part of a trace that is one run: the record at its root, and those that belong to it, each before its
    children."""

    top: Record
    records: list[Record]


def run_roots(spans: Iterable[TraceSpan], tools: Collection[str] = ()) -> list[RunRoot]:
    """Returns the runs in the spans of one trace, in the order in which they began.

    A run is what happens in the outermost span of a known kind. Several of these side by side, under a span of another
    kind such as an HTTP request, are a run each where they are pipelines that retrieve; the others of them are one.
    """
    found = []
    for top in _trees(spans, tools):
        if top.kind is not None:
            found.append(RunRoot(top, list(top.inside())))
            continue
        loose: list[Record] = []
        for record in _outermost(top):
            if record.kind in ("agent", "chain", "task") and record.inside_weight:
                found.append(RunRoot(record, list(record.inside())))
            else:
                loose += record.inside()
        if loose:
            found.append(RunRoot(top, loose))
    return sorted(found, key=lambda root: min(record.span.started_ns for record in root.records))


def root_so_far(spans: Iterable[TraceSpan], tools: Collection[str] = ()) -> RunRoot | None:
    """Returns the run of a trace that is not complete: all that hangs on one root, which need not have come; None while
    there are several, of which nobody can tell what they are parts of."""
    tops = _trees(spans, tools)
    return RunRoot(tops[0], list(tops[0].inside())) if len(tops) == 1 else None


def _outermost(top: Record) -> Iterator[Record]:
    """Yields the outermost records of a known kind."""
    waiting = [top]
    while waiting:
        record = waiting.pop()
        if record.kind not in (None, "other"):
            yield record
        else:
            waiting += reversed(record.children)


def _trees(spans: Iterable[TraceSpan], tools: Collection[str]) -> list[Record]:
    """Returns the roots of the trees. A span that came twice counts once, as it came last; spans whose parent is
    missing stand side by side under a root in its place; a circle of parents is cut at its earliest span."""
    latest: dict[str, TraceSpan] = {}
    for span in spans:
        before = latest.get(span.span_id)
        if before is None or span.ended_ns or not before.ended_ns:
            latest[span.span_id] = span
    records = {id: read_span(span, tools) for id, span in latest.items()}
    for span in latest.values():
        if span.parent_id and span.parent_id not in records:
            absent = TraceSpan(span.trace_id, span.parent_id, started_ns=span.started_ns)
            records[span.parent_id] = Record(absent)
    ordered = sorted(records.values(), key=lambda record: record.span.started_ns)
    for record in ordered:
        record.parent = records.get(record.span.parent_id)
        if record.parent is not None:
            record.parent.children.append(record)
    reached: set[Record] = set()
    for record in sorted(ordered, key=lambda record: record.parent is not None):
        if record not in reached:
            if record.parent is not None:  # no root leads to it
                record.parent.children.remove(record)
                record.parent = None
            reached.update(record.inside())
    for record in ordered:
        weight = record.weight
        for above in record.around():
            if above.inside_weight >= weight:
                break
            above.inside_weight = weight
    return [record for record in ordered if record.parent is None]
