"""The examination: what a model's answers to the cases say of it, and what that means for its scores."""

import dataclasses
import io
import itertools
import math
from functools import cache

import pytest
from rich.console import Console
from support.examinee import examinee, label
from support.fake_model import FakeModel
from support.misbehaving_server import serving
from support.polling import eventually
from support.reader import named

from ragguard import DistractorGuard, RagGuard
from ragguard.analysis.hops import print_hops
from ragguard.engines.base import EngineInfo
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.errors import CircuitOpen, EngineRejected, EngineUnreachable
from ragguard.facts.run_view import RunView
from ragguard.lab.exam.examination import examine, repeated
from ragguard.records import Failure, Passage, RetrievalStep, Run
from ragguard.scorers.exam.cases import SAME_SUBJECT, exam_cases
from ragguard.scorers.exam.record import (
    NEEDED,
    ExamRecord,
    failed_behind,
    keep_record,
    known_record,
    record_file,
    remarks_on,
)
from ragguard.scorers.exam.short_form import BRIEF_CASES, BRIEF_PROMPTS, examine_briefly, examine_unknown
from ragguard.scorers.pipeline import ScoringPipeline

DEFAULT = load_prompts("default")
SAYS_YES = {"label": lambda text, name: {"A": 0.7, "B": 0.2}.get(name, label(text, name))}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGGUARD_EXAMS", str(tmp_path / "exams"))
    monkeypatch.delenv("RAGGUARD_EXAM", raising=False)


async def kept(engine, **changed):
    """Examines an engine and keeps its record, with some of it changed."""
    record = dataclasses.replace(await examine(engine, DEFAULT), **changed)
    assert keep_record(record, record_file(await engine.info(), DEFAULT))
    return record


def a_run():
    one = exam_cases().questions[0]
    step = RetrievalStep(
        id="s", run_id="r", query=one.question, passages=[Passage(one.gold), Passage(one.other)]
    )
    return Run(id="r", question=one.question, references=[one.answer], answer=one.answer, steps=[step])


async def test_model_that_knows_the_answers_passes_in_everything():
    record = await examine(examinee(), DEFAULT)
    assert not record.failed
    assert not record.reasons
    expected = {"partial": 1.0, "relevance_partial": 1.0, "right": 1.0, "right_two_hop": 1.0, "abstains": 1.0}
    perfect = dict.fromkeys(
        ("abstention", "relevance", "query_gain", "likelihood", "grades", "entailment"), 1.0
    )
    assert record.figures == pytest.approx(perfect | expected)


@cache
def orders(good, bad, pairs):
    """In how many orders of good and bad cases a good one stands over a bad one in so many pairs."""
    if pairs < 0:
        return 0
    if not good or not bad:
        return int(pairs == 0)
    return orders(good - 1, bad, pairs - bad) + orders(good, bad - 1, pairs)


def test_a_model_that_guesses_passes_the_short_form_in_at_most_two_of_a_hundred_cases():
    cases = BRIEF_CASES // 2
    least = math.ceil(NEEDED["relevance"] * cases**2)
    passing = sum(orders(cases, cases, pairs) for pairs in range(least, cases**2 + 1))
    assert passing / math.comb(2 * cases, cases) <= 0.02


async def test_a_judge_that_sees_only_the_subject_fails_by_near_misses():
    def by_subject(text, name):
        one = next(one for one in exam_cases().questions if one.question in text)
        if name not in "AB":
            return label(text, name)
        on_subject = any(getattr(one, kind) in text for kind in ("gold", *SAME_SUBJECT))
        return 0.7 if on_subject == (name == "A") else 0.2

    record = await kept(examinee(label=by_subject))
    assert record.figures["relevance"] == 1.0
    assert record.figures["relevance_partial"] == 0.5
    assert record.failed["relevance"] == "0.50, 0.75 is needed"
    assert record.replaces_relevance
    fit_only = dataclasses.replace(record, figures={**record.figures, "partial": 0.55})
    assert not fit_only.replaces_relevance, "the likelihood of the query must tell near misses, too"


async def test_a_figure_whose_interval_holds_the_mark_is_in_doubt():
    record = await examine(examinee(), DEFAULT)
    assert not record.in_doubt
    low, high = record.intervals["relevance"]
    assert 0.9 < low < high == 1.0
    near = dataclasses.replace(
        record, figures={**record.figures, "abstention": 0.8}, intervals={"abstention": (0.66, 0.94)}
    )
    assert near.in_doubt == {"abstention": "0.80, 0.66 to 0.94"}
    assert near.remark == (
        "examinee passed its examination only just in abstention (0.80, 0.66 to 0.94): its numbers may mislead"
    )


async def test_what_a_model_cannot_be_asked_has_a_reason_and_no_figure():
    class Mute(type(examinee())):
        async def continuations(self, *args, **more):
            raise EngineRejected("no such thing here")

    record = await examine(Mute(label=label), DEFAULT)
    assert record.figures.keys().isdisjoint({"likelihood", "query_gain"})
    assert record.failed["likelihood"] == "no such thing here"
    assert record.log_odds is None


async def test_stopped_examination_goes_on_where_it_was(tmp_path):
    async def asked(engine, cache=None):
        connected = connect(engine, cache=cache)
        try:
            await examine(connected, DEFAULT)
        finally:
            await connected.aclose()
        return sum(len(call.prompts) for call in engine.calls)

    in_all = await asked(examinee())
    first = examinee(fault=lambda call: EngineUnreachable("gone") if len(first.calls) > 6 else None)
    with pytest.raises((EngineUnreachable, CircuitOpen)):
        await asked(first, tmp_path / "answers")
    again = await asked(examinee(), tmp_path / "answers")
    assert 0 < again <= in_all - sum(len(call.prompts) for call in first.calls[:6])


async def test_short_form_asks_as_few_prompts_as_it_says_and_decides_no_score():
    engine = examinee(**SAYS_YES)
    record = await examine_briefly(engine, DEFAULT)
    assert sum(len(call.prompts) for call in engine.calls) == BRIEF_PROMPTS
    assert "failed a short examination in relevance" in record.remark
    keep_record(record, record_file(await engine.info(), DEFAULT))
    results = await ScoringPipeline(engine, scorers=["utility"]).results(a_run())
    assert not [one for one in results if isinstance(one, Failure)]


async def test_record_is_read_as_it_was_kept_and_belongs_to_model_and_prompts():
    engine = examinee()
    record, info = await kept(engine), await engine.info()
    assert known_record(info, DEFAULT) == record
    assert known_record(dataclasses.replace(info, fingerprint="another"), DEFAULT) is None
    assert known_record(info, load_prompts("nano")) is None


async def test_relevance_by_label_that_failed_is_told_by_likelihood_and_marked():
    engine = examinee(**SAYS_YES)
    await kept(engine)
    results = await ScoringPipeline(engine, scorers=["utility"]).results(a_run())
    found = {one.position: one for one in results if one.name == "p_relevant"}
    assert found[1].value > 0.8 > 0.2 > found[2].value
    assert {one.metadata["how"] for one in found.values()} == {"likelihood"}
    assert {one.name for one in results if not isinstance(one, Failure)} >= {"utility", "udcg"}


async def test_advice_and_report_say_at_once_what_cannot_be_judged():
    engine = examinee()
    await kept(engine, figures={"abstention": 0.57, "relevance": 0.4, "query_gain": 0.5, "grades": 0.1})
    async with RagGuard(engine, store=None, scorers=["likelihood"]) as rg:
        with rg.run("Who?") as run:
            run.retrieved("Who?", [Passage("Ada Berg did.")])
            before = len(engine.calls)
            advice = await run.aadvise(60_000)
            assert len(engine.calls) == before, "nothing is asked"
            run.answered("Ada Berg")
        assert (advice.action, advice.status) == ("continue", "error")
        assert "failed its examination in abstention" in advice.reasons[0]
        assert await rg.aflush(20)
        console = Console(record=True, width=140, file=io.StringIO())
        print_hops(rg, console)
    shown = console.export_text()
    first = shown.strip().splitlines()[0]
    assert first.startswith(
        "Passages are not judged, as examinee failed its examination in abstention and relevance"
    )
    assert "reference answers give each passage a verdict" in first
    assert "–" not in shown, "no table of dashes"


UNFIT = {"abstention": 0.57, "relevance": 0.4, "query_gain": 0.5, "likelihood": 0.9}


@pytest.mark.parametrize("scorers", [["utility"], ["likelihood"], ["utility", "likelihood"]])
async def test_references_give_passages_a_verdict_where_the_model_may_not_judge_them(scorers):
    engine = examinee()
    await kept(engine, figures=UNFIT)
    results = await ScoringPipeline(engine, scorers=scorers).results(a_run())
    brings = {score.position: score for score in named(results, "brings_answer", None)}
    assert brings[1].value > 0.8 > 0.2 > brings[2].value
    assert (brings[1].label, brings[2].label) == ("has a reference", "")
    assert {one.reference_source for one in brings.values()} == {"gold"}
    view = RunView(a_run(), [one for one in results if not isinstance(one, Failure)])
    assert [one.verdict.words for one in view.hops[0].passages] == ["helps", "does little"]
    without = await ScoringPipeline(engine, scorers=scorers).results(
        dataclasses.replace(a_run(), references=None)
    )
    assert not named(without, "brings_answer", None)


async def test_a_contradiction_of_a_reference_is_named_by_words_where_the_model_may_not_rate():
    engine = examinee()
    await kept(engine, figures=UNFIT | {"grades": 0.1})
    one = exam_cases().questions[0]
    passages = [Passage(one.gold), Passage(one.contradiction)]
    contested = dataclasses.replace(a_run(), steps=[dataclasses.replace(a_run().steps[0], passages=passages)])
    for run, value in ((contested, 1.0), (a_run(), 0.0)):
        results = await ScoringPipeline(engine, scorers=["coverage"]).results(run)
        found = named(results, "contested", None)
        assert [(score.level, score.value) for score in found] == [("step", value), ("run", value)]
        assert found[0].label == ("1.1 against 1.2" if value else "")


async def test_words_alone_tell_where_no_likelihood_is_to_be_had():
    engine = examinee()
    await kept(engine, figures=UNFIT | {"likelihood": 0.5})
    results = await ScoringPipeline(engine, scorers=["utility"]).results(a_run())
    brings = {score.position: score for score in named(results, "brings_answer", None)}
    assert brings[1].value > 0.8 > 0.2 > brings[2].value
    assert {one.metadata["how"] for one in brings.values()} == {"words"}


async def test_a_model_that_may_judge_needs_no_references():
    engine = examinee()
    await kept(engine)
    results = await ScoringPipeline(engine, scorers=["utility"]).results(a_run())
    assert not named(results, "brings_answer", None)


async def test_probe_that_failed_gives_failures_with_the_reason_and_is_not_asked():
    engine = examinee()
    await kept(engine, figures={"abstention": 0.57, "relevance": 0.9, "grades": 0.1})
    before = len(engine.calls)
    results = await ScoringPipeline(engine, scorers=["utility", "grades"]).results(a_run())
    names = {one.name for one in results if not isinstance(one, Failure)}
    assert "p_relevant" in names
    assert names.isdisjoint({"p_abstain", "utility", "udcg", "grade"})
    failures = [one for one in results if isinstance(one, Failure) and one.error == "ProbeFailed"]
    assert {one.scorer for one in failures} == {"utility", "grades"}
    assert "failed its examination in abstention (0.57, 0.75 is needed)" in failures[0].message
    assert not any("NO-RESPONSE" in call.labels for call in engine.calls[before:])


async def test_examinations_are_not_heeded_where_they_are_switched_off(monkeypatch):
    engine = examinee()
    await kept(engine, figures={"abstention": 0.57})
    examined = await ScoringPipeline(engine, scorers=["utility"]).identity()
    monkeypatch.setenv("RAGGUARD_EXAM", "off")
    pipeline = ScoringPipeline(engine, scorers=["utility"])
    assert "utility" in {one.name for one in await pipeline.results(a_run()) if not isinstance(one, Failure)}
    assert await pipeline.identity() != examined


async def test_unknown_model_is_examined_once_and_warned_of(caplog):
    engine = examinee(**SAYS_YES)
    await examine_unknown(engine)
    assert "examinee failed a short examination in relevance (0.50" in caplog.text
    asked = len(engine.calls)
    await examine_unknown(engine)
    assert len(engine.calls) == asked


def scored(engine):
    with RagGuard(engine, scorers=["utility"], store=None) as rg:
        with rg.run("Who?") as run:
            run.retrieved("Who?", ["Ada."])
        assert rg.flush(timeout=60)
        yield


def test_rag_guard_examines_a_server_that_nobody_examined_before(tmp_path):
    with serving(FakeModel().handle) as url:
        for _ in scored(url):
            eventually(lambda: list((tmp_path / "exams").glob("*.json")))


def test_numbers_of_a_model_that_failed_decide_nothing():
    kept_record = ExamRecord("m", "vllm/m", "default/1", figures={"abstention": 0.5, "relevance": 0.9})
    keep_record(kept_record, record_file(EngineInfo("m", "vllm", "vllm/m"), DEFAULT))
    assert "m failed its examination in abstention" in failed_behind("udcg", ["vllm/m, default/1"])
    assert failed_behind("p_relevant", ["vllm/m, default/1"]) == ""
    assert failed_behind("udcg", ["vllm/other, default/1"]) == ""
    assert remarks_on(["vllm/m", "x"]) == [kept_record.remark]


async def test_answers_that_a_model_does_not_repeat_give_scores_their_spread_as_the_least_error():
    asked = itertools.count()

    def wavers(text, name):
        return label(text, name) + (next(asked) % 3 * 0.02 if name in ("NO-RESPONSE", "A") else 0)

    unsteady = examinee(label=wavers)
    spread = await repeated(unsteady, DEFAULT)
    assert spread["relevance"] > 0.001
    assert await repeated(examinee(), DEFAULT) == {"abstention": 0.0, "relevance": 0.0, "cold": 0.0}
    engine = examinee()
    await kept(engine, spread={"abstention": 0.03, "relevance": 0.04, "cold": 0.01})
    scores = {one.name: one for one in await ScoringPipeline(engine, scorers=["utility"]).results(a_run())}
    assert scores["p_abstain"].stderr == 0.03
    assert scores["p_relevant"].stderr == pytest.approx(0.04)


def guarded(engine, **options):
    """A guard, a question, and its passages: one that answers and one about something else."""
    one = exam_cases().questions[0]
    passages = [Passage(one.gold), Passage(one.other)]
    return DistractorGuard(engine, budget_ms=20_000, **options), one.question, passages


async def test_guard_by_a_model_whose_labels_failed_judges_relevance_by_likelihood(caplog):
    engine = examinee(**SAYS_YES)
    await kept(engine)
    guard, question, passages = guarded(engine)
    for _ in range(2):
        gold, other = await guard.judged(question, passages)
    assert gold.p_relevant > 0.8 > 0.2 > other.p_relevant
    assert caplog.text.count("by the likelihood of the query instead of labels") == 1


async def test_guard_by_a_model_that_failed_with_nothing_in_its_place_drops_nothing_unless_told(
    caplog, monkeypatch
):
    for figures in ({"relevance": 0.5, "abstention": 1.0}, {"relevance": 1.0, "abstention": 0.5}):
        engine = examinee(label=lambda text, name: {"A": 0.1, "B": 0.8}.get(name, 0.1))
        await kept(engine, figures=figures, log_odds=None)
        asked = len(engine.calls)
        guard, question, passages = guarded(engine, pause_after=1, min_keep=0)
        for _ in range(2):
            decision = await guard.aprune(question, passages)
            assert (decision.status, decision.kept) == ("error", passages)
            assert "failed its examination" in decision.reason
            assert "set RAGGUARD_EXAM=off" in decision.reason
        assert guard.health().causes == {"ProbeFailed": 2}
        assert len(engine.calls) == asked
    monkeypatch.setenv("RAGGUARD_EXAM", "off")
    guard, question, passages = guarded(engine, min_keep=0)
    assert (await guard.aprune(question, passages)).status == "pruned"
