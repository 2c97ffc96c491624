"""Where advice is seen: in the store, in run files, beside its hop in reports, and as a span."""

import io

from rich.console import Console
from support.scripted_engine import ScriptedEngine
from support.traced import kept_spans

from ragguard import Passage, RagGuard, print_hops
from ragguard.analysis.page import write_html
from ragguard.records import Advice, RetrievalStep, Run, ScoredRun, Usage
from ragguard.telemetry.otel import OtelSink

QUESTION = "Who founded Norvik Mills?"
ADVICE = Advice(
    "distrust", ["who founded it?"], 0.25, 0.1, reasons=["passages contradict each other", "sufficiency 0.31"],
    calibrated=True, elapsed_ms=12.5, numbers={"sufficiency": 0.31, "threshold": 0.6}, usage=Usage(2, 7, 300, 20),
    step_id="s", engine="reader/first_token", started_ns=1_700_000_000_000_000_000,
)  # fmt: skip


def a_run(advice=ADVICE):
    step = RetrievalStep("s", "r", query="q", passages=[Passage("Ada Berg founded it.", "p")], advice=advice,
                         started_ns=1_699_999_999_000_000_000, ended_ns=1_699_999_999_500_000_000)  # fmt: skip
    return Run(
        "r", QUESTION, steps=[step], started_ns=1_699_999_999_000_000_000, ended_ns=1_700_000_001_000_000_000
    )


def says(text, label):
    return {"NO-RESPONSE": 0.05, "A": 0.9, "B": 0.1, "5": 0.9}.get(label, 0.0)


def captured(path, **settings):
    """A store with one run that was advised after each of its two steps."""
    engine = ScriptedEngine(label=says, answer=lambda text, index: "Ada Berg")
    with RagGuard(engine, store=path, scorers=(), **settings) as rg:
        with rg.run(QUESTION) as run:
            run.retrieved("nothing", [])
            run.advise(60_000)
            run.retrieved(QUESTION, [Passage("Ada Berg founded Norvik Mills.")])
            run.advise(60_000)
        assert rg.flush(60)
        return rg.runs()[0], [step.advice for step in run.steps]


def test_the_store_keeps_the_latest_advice_of_each_step(tmp_path):
    stored, given = captured(tmp_path / "a.db")
    assert [step.advice for step in stored.steps] == given
    assert [one.action for one in given] == ["rephrase", "answer"]


def test_redaction_reaches_reasons_and_sub_questions(tmp_path):
    stored, given = captured(tmp_path / "a.db", redact=lambda text: text.replace("Norvik", "***"))
    assert any("Norvik" in text for one in given for text in (*one.reasons, *one.open_sub_questions)) is False
    advice = Advice("continue", ["who founded Norvik Mills?"], reasons=["open: who founded Norvik Mills?"])
    with RagGuard(
        store=tmp_path / "b.db", scorers=(), redact=lambda text: text.replace("Norvik", "***")
    ) as rg:
        with rg.run(QUESTION) as run:
            step = run.retrieved("q", [Passage("x")])
            rg.recorder.step_amended(step, run.id, advice=advice)
        assert rg.flush(60)
        kept = rg.runs()[0].steps[0].advice
    assert (kept.open_sub_questions, kept.reasons) == (
        ["who founded *** Mills?"],
        ["open: who founded *** Mills?"],
    )
    assert stored.steps[1].advice.action == "answer"


def test_the_terminal_shows_it_beside_the_hop():
    shown = io.StringIO()
    print_hops(_Shown(), Console(width=200, file=shown))
    assert "advice: distrust: passages contradict each other; sufficiency 0.31" in shown.getvalue()
    assert "advice: continue (uncalibrated)" in shown.getvalue()


class _Shown:
    def runs(self):
        return [a_run(), a_run(Advice("continue"))]

    def scores(self, run_id):
        return []

    def failures(self, run_id):
        return []


def test_the_page_has_it_beside_the_hop(tmp_path):
    captured(tmp_path / "a.db")
    with RagGuard(store=tmp_path / "a.db", scorers=()) as rg:
        write_html(rg.store.overviews(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert '"advice":{"action":"answer","reasons":["sufficiency' in page


async def test_advice_is_a_span_under_its_step():
    exporter, provider = kept_spans()
    await OtelSink(provider, capture_content=True).submit(ScoredRun(a_run()))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    span, retrieval = spans["ragguard.advice"], spans["retrieval"]
    assert span.parent.span_id == retrieval.context.span_id
    assert (span.start_time, span.end_time - span.start_time) == (ADVICE.started_ns, 12_500_000)
    found = dict(span.attributes)
    assert found["ragguard.advice.action"] == "distrust"
    assert found["ragguard.advice.numbers.sufficiency"] == 0.31
    assert found["ragguard.usage.prompt_tokens"] == 300
    assert "who founded it?" in found["output.value"]
    assert "error.type" not in found


async def test_without_leave_no_text_of_it_is_on_the_span():
    exporter, provider = kept_spans()
    late = Advice("continue", reasons=["secret"], status="timeout", elapsed_ms=1.0)
    await OtelSink(provider, capture_content=False).submit(ScoredRun(a_run(late)))
    span = next(span for span in exporter.get_finished_spans() if span.name == "ragguard.advice")
    assert "secret" not in str(span.attributes)
    assert span.attributes["error.type"] == "timeout"
