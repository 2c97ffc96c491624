"""ragguard for Haystack 2.

instrument(rg)                                              # every pipeline and agent of this process, from now on
pipeline.add_component("filter", DocumentGuard(guard))   # the guard, before the prompt is built

The way of an event: Haystack's components, pipelines and agents report to its tracer. `tracer` stands before the tracer
that was there and hands each operation on to it; `operations` says what an operation is, and reports it to
the recorder.
"""

from ragguard_haystack.guard import DocumentGuard
from ragguard_haystack.tracer import instrument, uninstrument

__all__ = ["DocumentGuard", "instrument", "uninstrument"]
