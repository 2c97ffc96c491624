"""What tests of several folders share."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from support.captured import Captured
from support.clock import Clock
from support.environments import VLLM
from support.scripted_engine import ScriptedEngine
from support.vllm_server import VllmServer, serve

from ragguard import RagGuard
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.layers import Patience
from ragguard.runtime import circuit_breaker
from ragguard.runtime.faults import NOTICES

with suppress(ImportError):  # not every environment has it
    from hypothesis import HealthCheck, settings

    # Property tests take as long as the machine lets them: a busy one is no failure.
    settings.register_profile("no_clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("no_clock")

os.environ["RAGGUARD_ENGINE"] = "nano"  # whatever serves on the machine that tests
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it looks up a host that no test needs
os.environ["RAGGUARD_EXAM"] = "off"  # servers of tests count what they are asked

_ATTEMPTS, _FIRST_PAUSE, *_OTHERS = Patience.__init__.__defaults__


def pytest_collection_modifyitems(items):
    """Puts files with slow tests first, so that no worker is left with one at the end.

    Refuses names that differ between processes: two that share the suite would collect different tests.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if varying := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"these names of tests hold an address: {varying[:3]}")


@pytest.fixture(autouse=True)
def _fresh_notices():
    """What is logged once a process is logged once a test."""
    NOTICES.forget()


@pytest.fixture(scope="module")
def nano() -> Engine:
    return connect("nano")


@pytest.fixture(autouse=True)
def _quick_attempts(monkeypatch):
    """The first pause before an engine is asked again takes ten milliseconds, not a quarter of a second."""
    monkeypatch.setattr(Patience.__init__, "__defaults__", (_ATTEMPTS, 0.01, *_OTHERS))


@pytest.fixture
def users_attempts(_quick_attempts, monkeypatch):
    """The pauses between attempts are those that users have."""
    monkeypatch.setattr(Patience.__init__, "__defaults__", (_ATTEMPTS, _FIRST_PAUSE, *_OTHERS))


@pytest.fixture
def breaker_clock(monkeypatch):
    """The clock of every circuit breaker: a pause is over once the test has added it to `breaker_clock.now`."""
    clock = Clock()
    monkeypatch.setattr(circuit_breaker, "monotonic", clock)
    return clock


@pytest.fixture
def captured():
    """An intake that keeps the events of one test."""
    return Captured()


@pytest.fixture
def path_in_memory(tmp_path):
    """A folder in memory where the machine has room for one: a test that syncs hundreds of times waits for no disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 2**28:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def make(tmp_path):
    """Makes a RagGuard over a store in the test's folder, on an engine that judges all alike; closes it at the end."""
    made = []

    def guard(engine=None, **more):
        engine = engine or ScriptedEngine(label=lambda text, label: 0.4)
        options = {"store": tmp_path / "s.db", "scorers": ("utility",), "exit_timeout": 0.5, **more}
        made.append(RagGuard(engine, **options))
        return made[-1]

    yield guard
    for one in made:
        one.close(2.0)


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory):
    """A real vLLM server that serves nano, started once. RAGGUARD_VLLM_URL names one that runs already.

    Tests that use it are marked `vllm` and run with `make test-vllm`.
    """
    running = os.environ.get("RAGGUARD_VLLM_URL")
    if running:
        url, _, model = running.partition("#")
        yield VllmServer(url, model or "nano")
        return
    if not VLLM.ready():
        pytest.skip(
            "NO vLLM HERE: run `make test-vllm`, or set RAGGUARD_VLLM_URL to a server that serves nano"
        )
    from ragguard.engines.nano.nano_engine import write_checkpoint

    folder = tmp_path_factory.mktemp("nano-checkpoint")
    write_checkpoint(folder)
    with serve(folder, "nano") as server:
        yield server
