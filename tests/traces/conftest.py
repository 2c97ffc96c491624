"""Keeps the instrumentations of one test out of the next."""

from __future__ import annotations

import pytest
from llama_index_instrumentation import get_dispatcher


@pytest.fixture(autouse=True)
def handlers_as_before():
    """Takes from LlamaIndex' dispatcher the handlers that OpenInference and OpenLLMetry leave there."""
    dispatcher = get_dispatcher("root")
    spans, events = list(dispatcher.span_handlers), list(dispatcher.event_handlers)
    yield
    dispatcher.span_handlers, dispatcher.event_handlers = spans, events
