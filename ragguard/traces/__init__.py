"""Makes runs of traces that something else logged: OpenTelemetry spans, in any of the known conventions for retrieval.

reading = traces.read("traces.jsonl")
for found in reading:
    found.run, found.remarks
"""

from __future__ import annotations

from ragguard.traces.reader import TracedRuns, read
from ragguard.traces.runs import TracedRun
from ragguard.traces.spans import TraceSpan

__all__ = ["TraceSpan", "TracedRun", "TracedRuns", "read"]
