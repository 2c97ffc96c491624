"""Objects that hand on what they do not define are what they hand on to, on every Python."""

import pytest

from ragguard import DistractorGuard, Passage, RagGuard, connect
from ragguard.engines.base import Engine
from ragguard.errors import InvalidInput
from ragguard.runtime.protocols import implements
from ragguard.telemetry.sink import BufferingSink, Sink, SpanSink


class Delegate:
    """Hands every attribute on to another object."""

    def __init__(self, to):
        self._to = to

    def __getattr__(self, name):
        return getattr(self._to, name)


class Buffer:
    """A sink that delivers nothing before it is told to."""

    def __init__(self):
        self.flushed = 0

    async def submit(self, scored):
        pass

    async def flush(self):
        self.flushed += 1

    def undelivered(self):
        return {}

    async def aclose(self):
        pass


def test_an_engine_that_delegates_is_an_engine():
    engine = Delegate(connect("nano"))
    assert implements(engine, Engine)
    guard = DistractorGuard(engine, threshold=-0.2, budget_ms=120_000)
    assert guard.prune("Which town is the home of Norvik Yards?", [Passage("Paris.")]).status == "kept_all"
    with RagGuard(engine, store=None):
        pass


def test_a_sink_that_delegates_is_flushed_where_what_it_hands_on_to_is():
    kept = Buffer()
    sink = Delegate(kept)
    assert implements(sink, Sink)
    assert implements(sink, BufferingSink)
    assert not implements(sink, SpanSink)
    with RagGuard("nano", store=None, sinks=[sink]) as rg:
        with rg.run("Who?") as run:
            run.retrieved("Who?", [Passage("Paris.")])
        rg.flush(timeout=60)
    assert kept.flushed


@pytest.mark.parametrize("engine", [Delegate(object()), object(), 3])
def test_engine_that_lacks_a_member_is_refused(engine):
    with pytest.raises(InvalidInput):
        RagGuard(engine, store=None)
