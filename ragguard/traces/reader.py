"""Reads traces from files and other sources, and yields their runs.

reading = read("traces.jsonl")
for found in reading:
    found.run, found.remarks
reading.counts                  # what was read, and what was not understood
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ragguard.errors import InvalidInput
from ragguard.storage.files.jsonl import JsonValue, json_items, opened, raw_lines
from ragguard.traces.pulled import SCHEMES, since_time, spans_at
from ragguard.traces.record import kind_of
from ragguard.traces.runs import TracedRun, runs_of_trace
from ragguard.traces.spans import TraceSpan
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import PackedSpan, packed, packed_data, packed_json, packed_protobuf

T = TypeVar("T")
_MOST_NAMED = 100
"""The most lines that cannot be read that are named."""
_KINDS_NAMED = 8
_NO_RETRIEVAL = (
    "a trace has no retrieval that ragguard recognises, so it is skipped; the spans of such traces: {kinds}. A "
    "retriever's or a search tool's span must have its results, as text or JSON; with --tool NAME (tools=[NAME]) "
    "every result of a tool is a passage, such as the file that a coding agent read"
)
_AT_ONCE = 1000
"""How many spans are kept in one transaction."""


class TracedRuns:
    """The runs of some traces, which can be iterated once; `counts` and `remarks` are about what was read so far."""

    def __init__(
        self,
        source: bytes | Iterable[TraceSpan | JsonValue],
        *,
        since: datetime | None = None,
        tools: Collection[str] = (),
        remarks: Counter[str] | None = None,
    ) -> None:
        """Takes spans, the values of a file of JSON, or the body of an OTLP request."""
        self.counts: Counter[str] = Counter()
        """How many `spans`, `traces` and `runs` were read, and of how many spans and lines nothing was."""
        self.remarks: Counter[str] = Counter() if remarks is None else remarks
        """The remarks on what was not understood, in sentences, each with how often it was made."""
        self._source, self._since, self._tools = source, since, tools

    def __iter__(self) -> Iterator[TracedRun]:
        kinds: Counter[str] = Counter()
        with closing(Spool()) as spool:
            spans = self._spans(self._source)
            while some := list(islice(spans, _AT_ONCE)):
                refused = spool.add(some)
                self.counts.update({"spans": len(some) - refused.total(), "spans rejected": refused.total()})
                self.remarks.update(
                    {f"a span {reason} is not read": count for reason, count in refused.items()}
                )
            for trace in spool.traces():
                own = spool.spans(trace)
                if self._since and all(span.parent_id for span in own):
                    continue  # it began before
                self.counts["traces"] += 1
                runs = runs_of_trace(own, self._tools)
                for found in runs:
                    self.counts["runs"] += 1
                    self.remarks.update(found.remarks)
                    yield found
                if not runs:
                    self.counts["traces without a retrieval"] += 1
                    kinds.update(kind_of(span) for span in own)
            if kinds:
                listed = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common(_KINDS_NAMED))
                self.remarks[_NO_RETRIEVAL.format(kinds=listed)] += self.counts["traces without a retrieval"]

    def _spans(self, source: bytes | Iterable[TraceSpan | JsonValue]) -> Iterator[PackedSpan]:
        if isinstance(source, bytes):
            is_json = source.lstrip()[:1] == b"{"
            yield from _unbroken(packed_json if is_json else packed_protobuf, source)
            return
        for item in source:
            if isinstance(item, TraceSpan):
                yield packed(item)
                continue
            try:
                if item.problem is not None:
                    raise item.problem
                yield from _unbroken(packed_data, item.data)
            except InvalidInput as problem:
                self.counts["lines rejected"] += 1
                if self.counts["lines rejected"] <= _MOST_NAMED:
                    self.remarks[f"line {item.number} is not read: {problem}"] += 1


def _unbroken(
    read_body: Callable[[T, list[InvalidInput]], Iterator[PackedSpan]], body: T
) -> Iterator[PackedSpan]:
    """Yields the spans of a body; raises InvalidInput at its end if one is broken."""
    broken: list[InvalidInput] = []
    yield from read_body(body, broken)
    if broken:
        raise broken[0]


def read(
    source: str | Path | bytes | Iterable[TraceSpan], *, since: str = "", tools: Sequence[str] = ()
) -> TracedRuns:
    """Returns the runs in traces that something else logged, with what was not understood.

    Args:
        source: A file of JSON as an OpenTelemetry Collector, Phoenix or Langfuse writes it, or a trajectory in ATIF
            (`-` is the standard input, `.gz` is unpacked); a project of a Phoenix or Langfuse server, as
            `phoenix://HOST/PROJECT` or `langfuse://HOST`; the body of an OTLP request, in protobuf or JSON; or spans.
        since: With an address, from when: `30m`, `24h`, `7d`, or a time of ISO 8601. Traces that began before are left
            out as a whole. Empty: all traces.
        tools: Tools whose results are passages whatever their form, such as `read_file`; without them a tool retrieves
            if its result has the shape of a search result.
    """
    if isinstance(source, str) and source.startswith(SCHEMES):
        began = since_time(since) if since else None
        remarks = Counter[str]()
        spans = spans_at(source, began, remarks=remarks)
        return TracedRuns(spans, since=began, tools=tools, remarks=remarks)
    if since:
        raise InvalidInput("since", since, "nothing without an address such as phoenix://HOST/PROJECT")
    return TracedRuns(_values_in(source) if isinstance(source, str | Path) else source, tools=tools)


def _values_in(path: str | Path) -> Iterator[JsonValue]:
    with opened(path) as (file, _):
        yield from json_items(raw_lines(file))
