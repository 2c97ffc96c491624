"""The report of `flush` and `close`, and the end of the process."""

from __future__ import annotations

import pytest
from support.program import run_program
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard
from ragguard.errors import EngineRejected
from ragguard.service.service import Report
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store


@pytest.fixture
def make():
    made = []

    def guard(engine=None, **more):
        engine = engine or ScriptedEngine(label=lambda text, label: 0.4)
        options = {"store": None, "scorers": ("utility",), "exit_timeout": 0.5, **more}
        made.append(RagGuard(engine, **options))
        return made[-1]

    yield guard
    for one in made:
        one.close(0.3)


def capture(rg, number=1):
    for n in range(number):
        with rg.run(f"who founded firm {n}?") as run:
            run.retrieved("firm", [Passage(f"Nordvik is firm {n}", "p1")])
            run.answered("Ada Berg")
    return run


def rejecting(label_probs):
    engine = ScriptedEngine()
    engine.label_probs = label_probs
    return engine


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (Report(True, captured=2, scored=2), "everything is scored and stored: 2 scored"),
        (Report(True, captured=3, scored=2, failed=1, open=1, cause_failed="utility: no"),
         "done, but not everything could be scored: 2 scored; 1 with scores that failed and are not tried again "
         "(utility: no); "
         "1 open"),
        (Report(False, captured=3, scored=1, pending=2, retrying=1, cause_pending="away"),
         "not everything is scored: 1 scored; 2 pending; 1 of them failed and will be tried again (away)"),
        (Report(False, captured=1, scored=1, undelivered=("1 scored runs to PhoenixSink not delivered (down)",)),
         "not everything was delivered: 1 scored; 1 scored runs to PhoenixSink not delivered (down)"),
        (Report(False, captured=2, scored=2, delivering=2),
         "not everything was delivered: 2 scored; 2 scored runs not yet delivered"),
        (Report(True, delivered=2, sent_to="http://gpu:4318"),
         "everything is delivered: 2 sent to http://gpu:4318, which scores them"),
        (Report(False, captured=1, scored=1, lost=2), "not everything is stored: 1 scored; 2 events or runs lost"),
        (Report(False, captured=9, scored=2, dropped=7),
         "not everything is scored: 2 scored; 7 dropped without scores, because more waited than queue_size allows "
         "without a store"),
        (Report(True, captured=2, unscored=2), "everything is stored: 2 kept without a score"),
        (Report(True, unsampled=4), "nothing was captured by this RagGuard: 4 not captured, because of sample_rate"),
        (Report(True, open=1), "no run has ended: 1 open"),
        (Report(False, captured=1), "not everything is scored: the number that is left was not known in time"),
        (Report(False),
         "not everything is scored: captured events wait for the thread that writes: for the disk, or for a slow "
         "`__str__`, splitter or redaction of yours"),
    ],
)  # fmt: skip
def test_each_outcome_reads_as_a_sentence(report, sentence):
    assert str(report) == f"{sentence} (0.0 s)"


def test_report_names_and_warns_of_the_cause_of_a_final_failure(make, caplog):
    def refuses(*args, **kwargs):
        raise EngineRejected("POST http://engine: HTTP 404: no model of that name")

    rg = make(rejecting(refuses))
    capture(rg, 5)
    report = rg.flush(10)
    assert report, "nothing more can come of it"
    assert report.failed == 5
    assert str(report).startswith(
        "done, but not everything could be scored: 5 with scores that failed and are not tried again (utility, "
        "EngineRej"
    )
    warned = [one for one in caplog.records if "could not be scored" in one.getMessage()]
    assert len(warned) == 1, "five runs and one cause are one warning"
    assert "no model of that name" in warned[0].getMessage()


def test_where_nothing_was_captured_the_sentence_says_what_was_seen(make):
    rg = make()
    nothing = str(rg.flush(5))
    assert (
        "nothing was captured by this RagGuard: no call of a framework was seen. What to do: attach"
        in nothing
    )
    assert nothing.index("RagGuardCallback(rg)") < nothing.index("instrument(rg)") < nothing.index("own code")
    rg.recorder.here.calls.seen("tool", "search")
    report = rg.flush(5)
    assert "tool 'search'" in str(report)
    assert "tools={'search': SPLITTER}" in str(report)
    assert "RagGuardCallback" not in str(report), "it is attached"
    capture(rg)
    assert "'search'" not in str(rg.flush(5))


def test_scores_failures_and_delete_take_the_run_itself(make):
    rg = make()
    handle = capture(rg)
    assert rg.flush(10)
    [run] = rg.runs()
    assert rg.scores(run) == rg.scores(handle) == rg.scores(run.id) != []
    assert rg.failures(run) == rg.failures(handle) == []
    with pytest.raises(ValueError, match="run: got 7; allowed: a run's id"):
        rg.scores(7)
    assert rg.delete(run)
    assert not rg.delete(handle)


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
    store = StoreReader(tmp_path / "s.db")
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
        assert StoreReader(tmp_path / f"{number}.db").run_count() == 1


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
