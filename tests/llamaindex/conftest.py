"""LlamaIndex, instrumented for one test, with every event in hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from llama_index_instrumentation import get_dispatcher

from ragguard.capture.recorder import Recorder
from ragguard_llamaindex import instrument, uninstrument

DEPRECATIONS = (
    "ignore::pydantic.warnings.PydanticDeprecationWarning",
    "ignore:is_running called from within a step:DeprecationWarning",
    "ignore:WorkflowHandler.cancel:DeprecationWarning",
)
"""The warnings that LlamaIndex's own agents and workflows cause."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for warning in DEPRECATIONS:
                item.add_marker(pytest.mark.filterwarnings(warning), append=False)


@pytest.fixture
def recorder(captured):
    """The recorder that LlamaIndex reports to; whatever a test does, it must see no fault and be left empty."""
    recorder = Recorder(captured)
    before = list(get_dispatcher("root").span_handlers)
    instrument(SimpleNamespace(recorder=recorder))
    yield recorder
    uninstrument()
    after = get_dispatcher("root").span_handlers
    assert len(after) == len(before)
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert recorder.faults.count == 0
    assert len(recorder.here.steps) == 0
