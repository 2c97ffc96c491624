"""The spans of one trace as a tree of records, and the roots in it that are runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ragguard.traces.record import Record, read_span
from ragguard.traces.trace_spans import TraceSpan


@dataclass(slots=True, eq=False)
class Node:
    """A record with those that happened inside it."""

    record: Record
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    inside_weight: int = 0
    """The greatest weight of a node inside it."""

    @property
    def weight(self) -> int:
        """How surely the node is a retrieval: 3 for the span of one, 2 for a task and 1 for a tool that gave documents,
        0 for anything else."""
        kind, record = self.record.kind, self.record
        if kind == "retrieval":
            return 3 if record.documents is not None or record.span.failed else 0
        return {"task": 2, "tool": 1}.get(kind or "", 0) if record.documents is not None else 0

    @property
    def retrieves(self) -> bool:
        """True for a retrieval inside which nothing is more surely one."""
        return 0 < self.weight >= self.inside_weight

    def around(self) -> Iterator[Node]:
        """Yields the nodes around this one, the innermost first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def inside(self) -> Iterator[Node]:
        """Yields this node and all inside it."""
        waiting = [self]
        while waiting:
            yield (node := waiting.pop())
            waiting += reversed(node.children)


@dataclass(slots=True)
class RunRoot:
    """A part of a trace that is one run: the node at its root, and the nodes that belong to it."""

    node: Node
    nodes: list[Node]


def run_roots(spans: Iterable[TraceSpan]) -> list[RunRoot]:
    """Returns the runs in the spans of one trace, in the order in which they began.

    A run is what happens in the outermost span of a known kind. Several of these side by side, under a span of another
    kind such as an HTTP request, are a run each where they are pipelines that retrieve; the others of them are one.
    """
    found = []
    for top in _trees(spans):
        if top.record.kind is not None:
            found.append(RunRoot(top, list(top.inside())))
            continue
        loose: list[Node] = []
        for node in _outermost(top):
            pipeline = node.record.kind in ("agent", "chain", "task") and node.inside_weight
            if pipeline:
                found.append(RunRoot(node, list(node.inside())))
            else:
                loose += node.inside()
        if loose:
            found.append(RunRoot(top, loose))
    return sorted(found, key=lambda root: min(node.record.span.started_ns for node in root.nodes))


def root_so_far(spans: Iterable[TraceSpan]) -> RunRoot | None:
    """Returns the run of a trace that is not complete: all that hangs on one root, which need not have come; None while
    there are several, of which nobody can tell what they are parts of."""
    tops = _trees(spans)
    return RunRoot(tops[0], list(tops[0].inside())) if len(tops) == 1 else None


def _outermost(top: Node) -> Iterator[Node]:
    """Yields the outermost nodes of a known kind."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if node.record.kind not in (None, "other"):
            yield node
        else:
            waiting += reversed(node.children)


def _trees(spans: Iterable[TraceSpan]) -> list[Node]:
    """Returns the roots of the trees. A span that came twice counts once, as it came last; spans whose parent is
    missing stand side by side under a root in its place; a circle of parents is cut at its earliest span."""
    nodes: dict[str, Node] = {}
    for span in spans:
        before = nodes.get(span.span_id)
        if before is None or span.ended_ns or not before.record.span.ended_ns:
            nodes[span.span_id] = Node(read_span(span))
    for node in list(nodes.values()):
        span = node.record.span
        if span.parent_id and span.parent_id != span.span_id:
            if span.parent_id not in nodes:
                nodes[span.parent_id] = Node(
                    Record(TraceSpan(span.trace_id, span.parent_id, started_ns=span.started_ns))
                )
            node.parent = nodes[span.parent_id]
    ordered = sorted(nodes.values(), key=lambda node: node.record.span.started_ns)
    _cut_circles(ordered)
    for node in ordered:
        if node.parent is not None:
            node.parent.children.append(node)
        weight = node.weight
        for above in node.around():
            if above.inside_weight >= weight:
                break
            above.inside_weight = weight
    return [node for node in ordered if node.parent is None]


def _cut_circles(nodes: Iterable[Node]) -> None:
    """Takes the parent from one node of each circle of parents."""
    known: set[Node] = set()
    for node in nodes:
        path: set[Node] = set()
        at: Node | None = node
        while at is not None and at not in known:
            path.add(at)
            if at.parent in path:
                at.parent = None
            at = at.parent
        known |= path
