"""Where a guard and the scorer see a passage differently, every view says so and why."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, Passage, RagGuard
from ragguard.analysis.digest import detail
from ragguard.analysis.hops import print_hops
from ragguard.records import Decision, Dropped, Score
from ragguard.scorers.disagreement import difference, disagreements

QUESTION, HELPS, VAGUE = "who founded the firm?", "Ada Berg founded it.", "The founder came from Oslo."
REFERENCES = "the scorer's judge saw the references, the guard's did not"


def says(text, label):
    """A judge that sees only with the references that a vague passage is relevant."""
    relevant = HELPS in text or "Reference" in text or "reference" in text
    return {"NO-RESPONSE": 0.33, "A": 0.99 if relevant else 0.4, "B": 0.01 if relevant else 0.6}.get(label)


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def watched(tmp_path, spans):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    engine = ScriptedEngine(label=says)
    with RagGuard(
        engine=engine, scorers=("utility",), store=tmp_path / "runs.db", tracer_provider=provider
    ) as rg:
        yield rg


def run(rg, references):
    guard = DistractorGuard(rg.engine, threshold=0.3, budget_ms=20_000)
    decision = guard.prune(QUESTION, [Passage(HELPS), Passage(VAGUE)])
    assert [drop.position for drop in decision.dropped] == [2]
    with rg.run(QUESTION, references=references) as handle:
        candidates = [*decision.kept, *(drop.passage for drop in decision.dropped)]
        handle.retrieved(QUESTION, decision.kept, candidates=candidates, decision=decision)
        handle.answered("Ada Berg")
    assert rg.flush(timeout=30)


def printed(rg):
    console = Console(width=200, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    print_hops(rg, console)
    console.file.close()
    return console.export_text()


def reasons_on_the_page(rg):
    (overview,) = rg.store.overviews(-0.2)
    (step,) = detail(overview, {})["steps"]
    return step["reasons"]


def on_the_span(spans):
    (guard,) = (span for span in spans.get_finished_spans() if span.name == "guard")
    return list(guard.attributes.get("ragguard.guard.disagreements", ()))


def test_a_judge_that_saw_the_references_is_named_in_every_view(watched, spans):
    run(watched, ["Ada Berg"])
    assert REFERENCES in printed(watched)
    assert "dropped: -0.13 < 0.30" in printed(watched)
    assert REFERENCES in reasons_on_the_page(watched)[2]
    (said,) = on_the_span(spans)
    assert said.startswith("rank 2: scored +0.67, by the guard -0.13")
    assert REFERENCES in said


def test_without_references_a_probability_that_was_rounded_is_named(watched, spans):
    run(watched, None)
    rounded = "the scorer takes a relevance of 0.40 as no, the guard as a probability"
    assert rounded in printed(watched)
    assert rounded in reasons_on_the_page(watched)[2]
    assert rounded in on_the_span(spans)[0]


def test_where_they_agree_nothing_is_said():
    drop = Dropped(Passage("a"), 1, "utility -0.60 < -0.20", -0.60, 0.33, 0.05)
    assert difference(drop, -0.67 + 0.05, saw_references=True) == ""
    assert disagreements(Decision([], [drop]), []) == {}


def test_other_models_are_named_where_nothing_else_explains_it():
    drop = Dropped(Passage("a"), 1, "utility -0.60 < -0.20", -0.60, 0.33, 0.05)
    score = Score("utility", 0.2, "passage", "r", position=1)
    assert "different models or prompts" in disagreements(Decision([], [drop]), [score])[1]


def test_a_copy_that_was_dropped_unjudged_is_no_disagreement():
    drop = Dropped(Passage("a"), 1, "a near-copy of passage 2")
    score = Score("utility", 0.9, "passage", "r", position=1)
    assert disagreements(Decision([], [drop]), [score]) == {}
