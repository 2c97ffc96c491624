"""Haystack, instrumented for one test, with every event in hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from haystack import tracing

from ragguard.capture.recorder import Recorder
from ragguard_haystack import instrument, uninstrument


@pytest.fixture
def recorder(captured):
    """The recorder that Haystack reports to; whatever a test does, it must see no fault and be left empty."""
    recorder, before = Recorder(captured), tracing.tracer.actual_tracer
    instrument(SimpleNamespace(recorder=recorder))
    yield recorder
    uninstrument()
    assert tracing.tracer.actual_tracer is before
    assert recorder.faults.count == 0
    assert len(recorder.here.steps) == len(recorder.here.runs) == 0
