"""A recorder with every event in hand, and the callback that reports to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ragguard.capture.recorder import Recorder
from ragguard_langchain import RagGuardCallback
from ragguard_langchain.call_tree import CallTree


@pytest.fixture
def recorder(captured):
    """Whatever a test does, the recorder must see no fault and nothing may be left open."""
    recorder = Recorder(captured)
    yield recorder
    assert recorder.faults.count == 0
    assert (len(recorder.here.runs), len(recorder.here.steps), len(CallTree.of(recorder).open_calls)) == (
        0,
        0,
        0,
    )


@pytest.fixture
def rg(recorder):
    return SimpleNamespace(recorder=recorder)


@pytest.fixture
def config(rg):
    """The config of one call with the callback attached."""
    return {"callbacks": [RagGuardCallback(rg)]}
