"""The end of a process: what was captured is scored and sent before OpenTelemetry shuts down."""

import time

import pytest
from support.program import run_program
from support.runs import a_run
from support.scripted_pipeline import ScriptedPipeline

from ragguard.service.service import Service
from ragguard.store.store import Store

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
        "with rg.run('who?') as run: run.retrieved('who?', [Passage('Ada')])\n"
        "print(time.time())"
    )
    done = run_program(code, tmp_path / "s.db")
    assert time.time() - float(done.stdout) < 20
    store = Store(tmp_path / "s.db")
    store.housekeep()
    assert store.left().pending == 1


async def test_a_service_that_was_closed_is_not_closed_again(tmp_path):
    from ragguard.service import exits

    service = Service(Store(tmp_path / "s.db"), ScriptedPipeline)
    await service.score(a_run())
    assert id(service) in exits._closers
    service.close(5)
    assert id(service) not in exits._closers
