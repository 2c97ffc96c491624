"""Reads traces from files and other sources, and yields their runs.

reading = read("traces.jsonl")
for found in reading:
    found.run, found.remarks
reading.counts                  # what was read, and what was not understood
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from itertools import islice
from pathlib import Path

from ragguard.errors import InvalidInput
from ragguard.storage.files.jsonl import LONGEST_LINE, json_of_line, opened, raw_lines
from ragguard.traces.pulled import SCHEMES, since_time, spans_at
from ragguard.traces.record import kind_of
from ragguard.traces.runs import TracedRun, runs_of_trace
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import (
    PackedSpan,
    TraceSpan,
    is_trace_data,
    packed,
    packed_json,
    packed_protobuf,
)

_MOST_NAMED = 100
"""The most lines that cannot be read that are named."""
_KINDS_NAMED = 8
_NO_RETRIEVAL = (
    "a trace holds no retrieval of a known kind, so that it is no run; the spans of such traces: {kinds}. A "
    "retriever's or a search tool's span has to hold what was found, as text or JSON"
)
_AT_ONCE = 1000
"""How many spans are kept in one transaction."""


class TracedRuns:
    """The runs of some traces, which can be iterated once; `counts` and `remarks` are about what was read so far."""

    def __init__(self, source: str | Path | bytes | Iterable[TraceSpan], since: datetime | None) -> None:
        self.counts: Counter[str] = Counter()
        """How many `spans`, `traces` and `runs` were read, and of how many spans and lines nothing was."""
        self.remarks: Counter[str] = Counter()
        """The remarks on what was not understood, in sentences, each with how often it was made."""
        self._source, self._since = source, since

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
                runs = runs_of_trace(own)
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

    def _spans(self, source: str | Path | bytes | Iterable[TraceSpan]) -> Iterator[PackedSpan]:
        if isinstance(source, bytes):
            is_json = source.lstrip()[:1] == b"{"
            yield from _unbroken(packed_json if is_json else packed_protobuf, source)
        elif isinstance(source, str) and source.startswith(SCHEMES):
            yield from map(packed, spans_at(source, self._since))
        elif isinstance(source, str | Path):
            yield from self._spans_of_file(source)
        else:
            yield from map(packed, source)

    def _spans_of_file(self, path: str | Path) -> Iterator[PackedSpan]:
        with opened(path) as (file, _):
            for number, (raw, size) in enumerate(raw_lines(file, LONGEST_LINE), 1):
                if not raw.strip() and size <= LONGEST_LINE:
                    continue
                try:
                    if size > LONGEST_LINE:
                        raise InvalidInput("length", f"over {LONGEST_LINE} bytes", "shorter lines")
                    yield from _unbroken(packed_json, raw)
                except InvalidInput as problem:
                    self.counts["lines rejected"] += 1
                    if self.counts["lines rejected"] <= _MOST_NAMED:
                        self.remarks[f"line {number} is not read: {problem}"] += 1


def _unbroken(
    read_body: Callable[[bytes, list[InvalidInput]], Iterator[PackedSpan]], body: bytes
) -> Iterator[PackedSpan]:
    """Yields the spans of a body; raises InvalidInput at its end where one is broken."""
    broken: list[InvalidInput] = []
    yield from read_body(body, broken)
    if broken:
        raise broken[0]


def read(source: str | Path | bytes | Iterable[TraceSpan], *, since: str = "") -> TracedRuns:
    """Returns the runs in traces that something else logged, with what was not understood.

    Args:
        source: A file of JSON lines as an OpenTelemetry Collector, Phoenix or Langfuse writes it (`-` is the standard
            input, `.gz` is unpacked); a project of a Phoenix or Langfuse server, as `phoenix://HOST/PROJECT` or
            `langfuse://HOST`; the body of an OTLP request, in protobuf or JSON; or spans.
        since: With an address, from when: `30m`, `24h`, `7d`, or a time of ISO 8601. Traces that began before are left
            out as a whole. Empty: all traces.
    """
    if since and not (isinstance(source, str) and source.startswith(SCHEMES)):
        raise InvalidInput("since", since, "nothing without an address such as phoenix://HOST/PROJECT")
    return TracedRuns(source, since_time(since) if since else None)


def is_trace_file(path: str | Path) -> bool:
    """True for an address of traces, and for a file whose first line holds spans; False where the file has none, or
    cannot be looked into twice. Raises where the first line of a JSON file goes on in the next."""
    if str(path).startswith(SCHEMES):
        return True
    if str(path) == "-" or not Path(path).is_file():
        return False
    with opened(path) as (file, _):
        first = next((raw for raw, _ in raw_lines(file, LONGEST_LINE) if raw.strip()), b"")
    if first.strip() in (b"{", b"["):
        raise InvalidInput("file", str(path), "JSON lines, one object a line, as `jq -c . FILE` writes them")
    try:
        return is_trace_data(json_of_line(first))
    except InvalidInput:
        return False
