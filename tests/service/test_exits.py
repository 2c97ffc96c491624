"""The end of a process: what was captured is scored and sent before OpenTelemetry shuts down."""

import sys

import pytest
from support.program import run_program
from support.runs import a_run
from support.scripted_pipeline import ScriptedSettings

from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process
from ragguard.storage.sqlite.store import Store

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from ragguard import Passage, RagGuard
from support.scripted_engine import ScriptedEngine

class Told(SpanExporter):
    def export(self, spans):
        for span in spans: print("span", span.name, flush=True)
        return SpanExportResult.SUCCESS
    def shutdown(self): print("shutdown", flush=True)

def provide():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Told()))
    trace.set_tracer_provider(provider)

order, store = sys.argv[1:]
if order == "before": provide()
rg = RagGuard(ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=store or None)
if order == "after": provide()
with rg.run("who?") as run:
    run.retrieved("who?", [Passage("Ada")])
    run.answered("Ada")
print("end of main", flush=True)
"""

STARTS_NO_THREADS = (3, 12, 0) <= sys.version_info < (3, 12, 2)
"""True on a Python that starts no thread once main() has returned, though other threads are at work (gh-113964)."""


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("kept", [True, False])
def test_spans_leave_before_the_provider_shuts_down(tmp_path, order, kept):
    done = run_program(PROGRAM, order, tmp_path / "s.db" if kept else "")
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "span evaluate retrieval" in lines
    assert lines.index("end of main") < lines.index("shutdown")
    assert lines[-1] == "shutdown"


def test_a_dead_engine_does_not_hold_up_the_end(tmp_path):
    code = (
        "import sys, time; from ragguard import Passage, RagGuard\n"
        "rg = RagGuard('http://127.0.0.1:9/v1', store=sys.argv[1], exit_timeout=0.5)\n"
        "with rg.run('who?') as run: run.retrieved('who?', [Passage('Ada')])"
    )
    run_program(code, tmp_path / "s.db", timeout=30)  # another attempt would come after a minute
    store = Store(tmp_path / "s.db")
    store.housekeep()
    assert store.left().pending == 1


async def test_a_service_that_was_closed_is_not_closed_again(tmp_path):
    from ragguard.service import flushing

    service = in_each_process(Configuration(scoring=ScriptedSettings(), store=tmp_path / "s.db")).get()
    await service.on_demand.evaluate_record(a_run())
    assert id(service) in flushing._endings.get()
    service.close(5)
    assert id(service) not in flushing._endings.get()


SERVING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor

main_has_ended = threading.Event()
threading._register_atexit(main_has_ended.set)  # before ragguard's own, so it runs after that
from ragguard import Passage, RagGuard

rg = RagGuard("nano", scorers=("utility",), store=sys.argv[1])

def capture(number):
    with rg.run(f"who founded firm {number}?") as run:
        run.retrieved("who?", [Passage("Ada Berg founded the firm.")])
        run.answered("Ada")

def serve():
    main_has_ended.wait()
    for number in range(100):
        capture(number)

pool = ThreadPoolExecutor(2)
pool.submit(capture, 200).result()  # its threads wait for more, until the interpreter ends them
if sys.argv[2] == "thread": threading.Thread(target=serve).start()
if sys.argv[2] == "pool": pool.submit(serve)
capture(100)
"""


@pytest.mark.parametrize(("serving", "runs"), [("thread", 102), ("pool", 102), ("nobody", 2)])
def test_capture_goes_on_while_threads_that_are_no_daemons_serve(tmp_path, serving, runs):
    done = run_program(SERVING, tmp_path / "s.db", serving, timeout=60)
    assert done.stderr == ""
    store = Store(tmp_path / "s.db", read_only=True)
    assert store.run_count() == runs
    assert all(store.scores(run.id) for run in store.runs())


HANGING = """
import asyncio, sys, threading, time
from ragguard import Passage, RagGuard
from support.scripted_engine import ScriptedEngine

class Hanging:
    async def submit(self, scored): pass
    async def aclose(self): await asyncio.to_thread(threading.Event().wait)

for number in range(30):
    rg = RagGuard(
        ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=f"{sys.argv[1]}/{number}.db",
        sinks=[Hanging()], exit_timeout=2.0,
    )
    with rg.run("who?") as run:
        run.retrieved("who?", [Passage("Ada")])
    globals()[f"rg{number}"] = rg
"""


def test_many_that_hang_end_together_and_not_one_after_the_other(tmp_path):
    """In a thread that hangs for ever, each; one after the other they would take a minute."""
    run_program(HANGING, tmp_path, timeout=50)
    for number in range(30):
        assert Store(tmp_path / f"{number}.db", read_only=True).run_count() == 1


COLLECTOR = """
import socket, sys, threading
from ragguard import Passage, RagGuard
from support.scripted_engine import ScriptedEngine

server = socket.create_server(("127.0.0.1", 0))  # accepts in the kernel, and never answers
rg = RagGuard(
    ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=sys.argv[1],
    otlp=f"http://127.0.0.1:{server.getsockname()[1]}",
)
with rg.run("who?") as run:
    run.retrieved("who?", [Passage("Ada")])
rg.flush(0.2)
rg.close(0.5)
print([thread.name for thread in threading.enumerate() if not thread.daemon])
"""


def test_a_collector_that_hangs_leaves_no_thread_that_holds_the_process(tmp_path):
    done = run_program(COLLECTOR, tmp_path / "s.db")
    assert done.stdout == "['MainThread']\n"


def test_async_calls_work_after_main_has_returned(tmp_path):
    """The standard thread pools refuse work by then, and with them `asyncio.to_thread`."""
    code = (
        "import asyncio, sys, threading; from ragguard import DistractorGuard, Passage, RagGuard\n"
        "rg = RagGuard(scorers=('utility',), store=sys.argv[1], durability='full')\n"
        "guard = DistractorGuard(rg.engine, budget_ms=20_000)\n"
        "async def serve():\n"
        "    async with rg.run('who?') as run:\n"
        "        await run.aretrieved('who?', [Passage('Ada')])\n"
        "    print('flushed', bool(await rg.aflush(30)), flush=True)\n"
        "    print('scored', len(await rg.score(run)) > 0, flush=True)\n"
        "    print('guarded', (await guard.aprune('who?', [Passage('Ada')])).status != 'error', flush=True)\n"
        "    print('closed', bool(await rg.aclose(30)), flush=True)\n"
        "def late():\n"
        "    threading.main_thread().join()\n"
        "    asyncio.run(serve())\n"
        "threading.Thread(target=late).start()\n"
    )
    done = run_program(code, tmp_path / "s.db")
    if STARTS_NO_THREADS:
        assert done.stdout.startswith("flushed False\n")
        assert "what is captured now is lost: Python ends and starts no thread any more" in done.stderr
    else:
        assert done.stdout.split("\n") == ["flushed True", "scored True", "guarded True", "closed True", ""]
