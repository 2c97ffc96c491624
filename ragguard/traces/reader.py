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
from itertools import islice
from pathlib import Path

from ragguard.errors import InvalidInput
from ragguard.storage.files.runfile import LONGEST_LINE, json_of_line, opened, raw_lines
from ragguard.traces.pulled import SCHEMES, since_time, spans_at
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
_AT_ONCE = 1000
"""How many spans are kept in one transaction."""


class TracedRuns:
    """The runs of some traces, which can be iterated once; `counts` and `remarks` are about what was read so far."""

    def __init__(self, spans: Callable[[TracedRuns], Iterator[PackedSpan]], *, rooted: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        """How many `spans`, `traces` and `runs` were read, and of how many spans and lines nothing was."""
        self.remarks: Counter[str] = Counter()
        """The remarks on what was not understood, in sentences, each with how often it was made."""
        self._spans, self._rooted = spans, rooted

    def __iter__(self) -> Iterator[TracedRun]:
        with closing(Spool()) as spool:
            spans = self._spans(self)
            while some := list(islice(spans, _AT_ONCE)):
                refused = spool.add(some)
                self.counts.update({"spans": len(some) - refused.total(), "spans rejected": refused.total()})
                self.remarks.update(
                    {f"a span {reason} is not read": count for reason, count in refused.items()}
                )
            for trace in spool.traces():
                own = spool.spans(trace)
                if self._rooted and all(span.parent_id for span in own):
                    continue  # it began before
                self.counts["traces"] += 1
                for found in runs_of_trace(own):
                    self.counts["runs"] += 1
                    self.remarks.update(found.remarks)
                    yield found


def read(source: str | Path | bytes | Iterable[TraceSpan], *, since: str = "") -> TracedRuns:
    """Returns the runs in traces that something else logged, with what was not understood.

    Args:
        source: A file of JSON lines as an OpenTelemetry Collector, Phoenix or Langfuse writes it (`-` is the standard
            input, `.gz` is unpacked); a project of a Phoenix or Langfuse server, as `phoenix://HOST/PROJECT` or
            `langfuse://HOST`; the body of an OTLP request, in protobuf or JSON; or spans.
        since: With an address, from when: `30m`, `24h`, `7d`, or a time of ISO 8601. Traces that began before are left
            out as a whole. Empty: all traces.
    """
    if isinstance(source, str) and source.startswith(SCHEMES):
        address, start = source, since_time(since) if since else None
        return TracedRuns(lambda _: map(packed, spans_at(address, start)), rooted=start is not None)
    if since:
        raise InvalidInput("since", since, "nothing without an address such as phoenix://HOST/PROJECT")
    if isinstance(source, bytes):
        body, read_body = source, packed_json if source.lstrip()[:1] == b"{" else packed_protobuf
        return TracedRuns(lambda _: _unbroken(read_body, body))
    if isinstance(source, str | Path):
        path = source
        return TracedRuns(lambda reading: _spans_of_file(path, reading))
    given = source
    return TracedRuns(lambda _: map(packed, given))


def is_trace_file(path: str | Path) -> bool:
    """True for an address of traces, and for a file whose first line holds spans; False where the file has none, or
    cannot be looked into twice."""
    if str(path).startswith(SCHEMES):
        return True
    if str(path) == "-" or not Path(path).is_file():
        return False
    with opened(path) as (file, _):
        first = next((raw for raw, _ in raw_lines(file, LONGEST_LINE) if raw.strip()), b"")
    _check_one_line(path, first)
    try:
        return is_trace_data(json_of_line(first))
    except InvalidInput:
        return False


def _check_one_line(path: str | Path, first: bytes) -> None:
    """Raises where a file begins with JSON that goes on in the next line: each of its lines would be an error."""
    if first.strip() in (b"{", b"["):
        raise InvalidInput("file", str(path), "JSON lines, one object a line, as `jq -c . FILE` writes them")


def _unbroken(
    read_body: Callable[[bytes, list[InvalidInput]], Iterator[PackedSpan]], body: bytes
) -> Iterator[PackedSpan]:
    """Yields the spans of a body; raises InvalidInput at its end where one is broken."""
    broken: list[InvalidInput] = []
    yield from read_body(body, broken)
    if broken:
        raise broken[0]


def _spans_of_file(path: str | Path, reading: TracedRuns) -> Iterator[PackedSpan]:
    with opened(path) as (file, _):
        for number, (raw, size) in enumerate(raw_lines(file, LONGEST_LINE), 1):
            if not raw.strip() and size <= LONGEST_LINE:
                continue
            if number == 1:
                _check_one_line(path, raw)
            try:
                if size > LONGEST_LINE:
                    raise InvalidInput("length", f"over {LONGEST_LINE} bytes", "shorter lines")
                yield from _unbroken(packed_json, raw)
            except InvalidInput as problem:
                reading.counts["lines rejected"] += 1
                if reading.counts["lines rejected"] <= _MOST_NAMED:
                    reading.remarks[f"line {number} is not read: {problem}"] += 1
