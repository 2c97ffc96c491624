"""Runs that are scored while they are open, and engines that fail, or are away, while runs wait."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply
from support.polling import aeventually, eventually
from support.program import run_program
from support.reader import reader
from support.runs import a_run, as_events
from support.scripted_pipeline import ListSink, ScriptedPipeline

from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.engines.connect import connect, open_engine
from ragguard.engines.http.server import ServerEngine
from ragguard.engines.layers import Coalesce, Patience, Retry
from ragguard.errors import EngineUnreachable
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scorers.settings import ScoringSettings
from ragguard.service.configuration import Configuration
from ragguard.service.service import in_each_process

SETTINGS = {"retry": RetrySchedule(attempts=500, first=0.01, longest=0.02)}
LIVE = BOTH = ("at once", "so far")


def begin(service, run, steps=None):
    """Captures a run without its end."""
    for event in as_events(run)[: 1 + (len(run.steps) if steps is None else steps)]:
        service.intake(event)


def end(service, run):
    service.intake(as_events(run)[-1])


def steps_seen(pipeline, run_id="r1"):
    """How many steps the open run had at each look, with the kind of scorer."""
    return [(len(run.steps), kind) for run, kind in pipeline.seen_open if run.id == run_id]


# What an open run gets


def test_a_step_has_scores_before_its_run_has_ended_and_the_run_is_not_done(make):
    pipeline, sink = ScriptedPipeline(live=BOTH), ListSink()
    service = make(pipeline, sinks=[sink])
    begin(service, a_run(), steps=1)
    eventually(lambda: len(sink.got) == 1)
    assert {(one.step_id, one.provisional) for one in service.store.scores("r1")} == {
        ("r1-s0", True),
        ("", True),
    }
    report = service.flush(10)
    assert (report.open, report.scored, report.captured, report.pending) == (1, 0, 0, 0)
    assert report
    assert [(one.run.status, len(one.run.steps), len(one.scores)) for one in sink.got] == [("open", 1, 2)]
    assert pipeline.seen == []


def test_live_scorer_of_the_last_step_alone_comes_first(make):
    pipeline = ScriptedPipeline(live=BOTH)
    service = make(pipeline)
    begin(service, a_run())
    eventually(lambda: len(pipeline.seen_open) >= 2)
    assert [kind for _, kind in steps_seen(pipeline)[:2]] == list(BOTH)


def test_of_a_run_whose_question_is_not_known_only_its_steps_are_asked_about(make):
    pipeline = ScriptedPipeline(live=BOTH)
    service = make(pipeline)
    run = a_run(question="")
    begin(service, run)
    eventually(lambda: service.store.scores("r1"))
    begin(service, a_run("r2"))
    eventually(lambda: len(steps_seen(pipeline, "r2")) >= 2)
    assert {kind for _, kind in steps_seen(pipeline)} == {"at once"}


def test_with_when_run_nothing_is_scored_before_the_end(make):
    pipeline = ScriptedPipeline(live=BOTH)
    service = make(pipeline, when="run")
    begin(service, a_run("open"))
    begin(service, a_run())
    end(service, a_run())
    assert service.flush(10)
    assert pipeline.seen_open == []
    assert service.store.scores("open") == []


def test_steps_of_one_turn_are_one_look(make, monkeypatch):
    monkeypatch.setattr("ragguard.service.live_scoring.STEP_WAITS", 1.0)
    pipeline = ScriptedPipeline(live=("at once",))
    service = make(pipeline)
    started, first, second, _ = as_events(a_run())
    service.intake(started)
    service.intake(first)
    assert service.intake.do(lambda: True).result(10), "the first one is in the store"
    service.intake(second)
    eventually(lambda: pipeline.seen_open)
    assert steps_seen(pipeline) == [(2, "at once")]


def test_a_step_that_ends_after_its_run_is_scored_with_it(make):
    service = make(tick_seconds=0.05)
    run = a_run()
    started, first, second, ended = as_events(run)
    for event in (started, first, ended):
        service.intake(event)
    assert service.flush(10)
    service.intake(second)
    assert service.flush(10)
    assert {one.step_id for one in service.store.scores("r1")} == {"r1-s0", "r1-s1", ""}
    assert not any(one.provisional for one in service.store.scores("r1"))


def test_an_open_run_is_redacted_before_it_is_scored(make):
    pipeline = ScriptedPipeline(live=("at once",), fault=lambda run: EngineUnreachable("no SECRET there"))
    service = make(pipeline, redact=lambda text: text.replace("says", "[x]").replace("SECRET", "[x]"))
    begin(service, a_run())
    eventually(lambda: service.store.failures("r1"))
    run, _ = pipeline.seen_open[0]
    assert "[x]" in run.steps[0].passages[0].text
    assert {one.message for one in service.store.failures("r1")} == {"no [x] there"}


def test_an_engine_without_a_cache_is_asked_at_the_end_alone_and_that_is_said(make, caplog):
    pipeline = ScriptedPipeline(live=BOTH, remembers=False)
    service = make(pipeline)
    begin(service, a_run())
    end(service, a_run())
    begin(service, a_run("r2"))
    service.wait_until_written()
    eventually(lambda: "no cache" in caplog.text)
    assert pipeline.seen_open == []
    bare = ScoringSettings(engine=Coalesce(reader())).build()
    assert (bare.remembers, ScoringSettings(engine=reader()).build().remembers) == (False, True)


# Who goes first


class Ordered(ScriptedPipeline):
    """Notes which runs were scored in which order."""

    order: list

    async def results(self, run, *, priority=10):
        self.order.append(run.id)
        return await super().results(run, priority=priority)

    async def results_so_far(self, run, kind):
        self.order.append(f"{run.id} so far")
        return await super().results_so_far(run, kind)


def test_runs_that_have_ended_go_before_open_ones(make):
    pipeline = Ordered(live=("at once",), gate=threading.Event())
    pipeline.order = []
    service = make(pipeline, concurrency=1)
    for name in ("first", "second", "third"):
        begin(service, a_run(name), 1)
        if name == "first":
            end(service, a_run(name))
            pipeline.entered.wait(10)  # it holds the one slot
    begin(service, a_run("open"), 1)
    for name in ("second", "third"):
        end(service, a_run(name))
    service.wait_until_written()
    pipeline.gate.set()
    eventually(lambda: "open so far" in pipeline.order)
    assert pipeline.order == ["first", "second", "third", "open so far"]


def test_open_runs_take_at_most_half_of_the_slots(make):
    pipeline = ScriptedPipeline(live=("at once",), gate=threading.Event())
    service = make(pipeline, concurrency=4)
    for number in range(6):
        begin(service, a_run(f"open{number}"))
    eventually(lambda: pipeline.running == 2)
    begin(service, a_run())
    end(service, a_run())
    eventually(lambda: pipeline.seen)
    assert pipeline.running == 3
    pipeline.gate.set()
    eventually(lambda: len({run.id for run, _ in pipeline.seen_open}) == 6)
    assert pipeline.most_running <= 3


# When an engine, or a process, goes away


def test_an_engine_that_is_away_while_the_run_is_open_and_back_at_its_end(make):
    back = threading.Event()
    pipeline = ScriptedPipeline(
        live=BOTH, fault=lambda run: None if back.is_set() else EngineUnreachable("away")
    )
    service = make(pipeline)
    begin(service, a_run())
    eventually(lambda: service.store.failures("r1"))
    assert [(one.error, one.will_retry) for one in service.store.failures("r1")] == [
        ("EngineUnreachable", True)
    ]
    assert service.store.scores("r1") == []
    back.set()
    end(service, a_run())
    assert service.flush(10)
    assert (len(service.store.scores("r1")), service.store.failures("r1")) == (3, [])
    assert service.store.counts["runs_failed"] == 0


def test_an_engine_that_is_away_at_the_end_leaves_what_was_said_before_as_provisional(make):
    away = threading.Event()
    pipeline = ScriptedPipeline(
        live=("at once",), fault=lambda run: EngineUnreachable("away") if away.is_set() else None
    )
    service = make(pipeline, retry=RetrySchedule(attempts=2, first=0.01, longest=0.01))
    begin(service, a_run())
    eventually(lambda: len(service.store.scores("r1")) == 3)
    away.set()
    end(service, a_run())
    report = service.flush(10)
    assert (report.failed, report.pending) == (1, 0)
    assert [one.provisional for one in service.store.scores("r1")] == [True] * 3
    assert [one.will_retry for one in service.store.failures("r1")] == [False]


KILLED = """
import json, os, signal, sys, time
from ragguard.engines.connect import connect
from ragguard.scorers.settings import ScoringSettings
from ragguard.service.service import in_each_process
from ragguard.service.configuration import Configuration
from support.reader import reader, two_hops
from support.runs import as_events

store, cache, asked = sys.argv[1:]
engine = reader()
scoring = ScoringSettings(engine=connect(engine, cache=cache))
service = in_each_process(Configuration(scoring=scoring, store=store)).get()
run = two_hops()
run.id = "killed"
for step in run.steps:
    step.run_id = run.id
for event in as_events(run)[:2]:
    service.intake(event)
wanted = {"utility", "semantic_entropy", "coverage"}
while not wanted <= {score.name for score in service.store.scores(run.id)}:
    time.sleep(0.01)
import sqlite3
prompts = [repr(prompt) + repr(call.labels) for call in engine.calls for prompt in call.prompts]
while sqlite3.connect(cache).execute("SELECT count(*) FROM answers_1").fetchone()[0] < len(prompts):
    time.sleep(0.01)
json.dump(prompts, open(asked, "w"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_prompts_of_a_killed_process_are_not_asked_again(tmp_path):
    files = [str(tmp_path / name) for name in ("s.db", "cache.db", "asked.json")]
    assert run_program(KILLED, *files, check=False).returncode == -signal.SIGKILL
    before = json.loads((tmp_path / "asked.json").read_text())
    engine = reader()
    scoring = ScoringSettings(engine=connect(engine, cache=files[1]))
    service = in_each_process(Configuration(scoring=scoring, store=files[0])).get()
    try:
        assert service.flush(30)
        scores = service.store.scores("killed")
        run = service.store.run("killed")
    finally:
        service.close(5)
    assert run.status == "abandoned"
    after = [repr(prompt) + repr(call.labels) for call in engine.calls for prompt in call.prompts]
    assert len(before) > 10
    assert not {*before} & {*after}
    assert len(after) < 3
    assert {"utility", "semantic_entropy", "coverage"} <= {score.name for score in scores}
    assert not any(score.provisional for score in scores)


# With a model


def test_a_ragguard_tells_what_a_step_did_while_the_run_goes_on(tmp_path):
    with RagGuard(engine="nano", scorers=["utility"], store=tmp_path / "s.db") as rg:
        with rg.run("Who founded Norvik Mills?") as run:
            run.retrieved("founder of Norvik Mills", ["Ada Berg founded Norvik Mills.", "Oslo is a town."])
            eventually(lambda: rg.scores(run))
            assert {"utility", "udcg"} <= {score.name for score in rg.scores(run)}
            assert all(score.provisional for score in rg.scores(run))
            before = {score.key: score.value for score in rg.scores(run)}
            run.answered("Ada Berg")
        assert rg.flush(30)
        ended = {score.key: score.value for score in rg.scores(run) if score.scorer != "words"}
        assert ended == before
        assert not any(score.provisional for score in rg.scores(run))


def capture(rg, question="who?"):
    with rg.run(question) as run:
        run.retrieved(question, [Passage("Ada Berg founded it", "p1"), Passage("bread", "p2")])
        run.answered("Ada Berg")
    return run


@pytest.fixture
async def server():
    async with MisbehavingServer(FakeModel().handle) as one:
        yield one


async def errors(rg, run):
    found = await aeventually(lambda: rg.failures(run.id))
    return {failure.error for failure in found}, {failure.will_retry for failure in found}


async def test_a_server_that_is_away_is_a_failure_and_its_runs_are_scored_when_it_is_back(server, tmp_path):
    # Without the layer that repeats calls, so that the service's own patience is what is seen.
    engine = Coalesce(open_engine(server.url))
    rg = RagGuard(engine, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5)
    first = capture(rg, "before?")
    assert await rg.aflush(20)
    await server.stop()
    while_away = capture(rg, "while it is away?")
    assert (await errors(rg, while_away))[1] == {True}
    assert {one.scorer for one in rg.scores(while_away.id)} <= {"words"}
    await server.start()
    assert await rg.aflush(60)
    assert rg.failures(while_away.id) == []
    assert {s.name for s in rg.scores(while_away.id)} == {s.name for s in rg.scores(first.id)}
    await rg.aclose(2)
    await engine.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        Reply("<html>oops", 200),
        Reply("default backend - 404", 404),
        Reply({"error": {"message": "no such model"}}, 404),
        Reply({"error": {"code": 502, "message": "overloaded"}}),
    ],
    ids=["page", "ingress", "model", "502 in 200"],
)
async def test_a_disturbance_of_a_server_that_has_answered_costs_no_run(server, tmp_path, reply):
    engine = Coalesce(open_engine(server.url))
    rg = RagGuard(engine, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5)
    capture(rg, "before?")
    assert await rg.aflush(20)
    healthy, server.handler = server.handler, lambda request: reply
    run = capture(rg, "while it is disturbed?")
    assert (await errors(rg, run))[1] == {True}
    server.handler = healthy
    assert await rg.aflush(60)
    assert rg.scores(run.id)
    assert rg.failures(run.id) == []
    await rg.aclose(2)
    await engine.aclose()


async def test_what_an_engine_failed_in_for_good_is_asked_again_in_the_same_store(tmp_path):
    settings = {"store": tmp_path / "s.db", "scorers": ["utility"]}
    found = [Passage("Ada Berg founded the firm in Oslo.")]
    run = Run(
        "r1", "who founded the firm?", steps=[RetrievalStep("s1", "r1", passages=found, candidates=found)]
    )
    async with RagGuard("nano", budget={"requests": 1}, **settings) as rg:
        await rg.score(replace(run, id="spends", question="who?"))
        refused = await rg.score(run)
    assert {one.error for one in refused.failures} == {"BudgetExceeded"}
    async with RagGuard("nano", **settings) as rg:
        scores = await rg.score(run)
        assert scores.failures == rg.failures(run) == []
        assert len(scores) == len(rg.scores(run)) > 0


async def test_run_that_went_on_is_not_scored_again_by_the_same_settings(tmp_path):
    async with RagGuard("nano", store=tmp_path / "s.db", scorers=["utility"]) as rg:
        for given in ({"id": "x"}, {"resume": "x"}):
            async with rg.run("Where does Ada live?", **given) as run:
                run.retrieved("Ada", ["Ada Berg lives in Oslo."])
        assert await rg.aflush(30)
        [stored] = rg.runs()
        before = rg.store.counts["runs_scored"]
        await rg.score(stored)
        assert rg.store.counts["runs_scored"] == before


async def test_runs_that_failed_for_now_are_tried_again_once_others_are_answered(server, tmp_path):
    """Their own pauses may have grown to minutes while a server was away, or failed half of the time."""
    engine = Coalesce(open_engine(server.url))
    rg = RagGuard(engine, store=tmp_path / "s.db", scorers=("utility",), exit_timeout=0.5, when="run")
    capture(rg, "before?")
    assert await rg.aflush(20)
    healthy, server.handler = server.handler, lambda request: Reply({}, 500)
    runs = [capture(rg, f"number {number}?") for number in range(3)]
    await aeventually(lambda: all(rg.failures(run.id) for run in runs), 60)
    with closing(sqlite3.connect(tmp_path / "s.db", timeout=10)) as db:
        db.execute("UPDATE runs SET due_ns = due_ns + 900000000000 WHERE attempts > 0")
        db.commit()
    server.handler = healthy
    capture(rg, "after?")
    await aeventually(lambda: all(rg.scores(run.id) and not rg.failures(run.id) for run in runs), 60)
    await rg.aclose(2)
    await engine.aclose()


async def test_an_engine_that_answers_nothing_is_waited_for_by_a_flush_or_by_the_close_and_not_by_both(
    tmp_path,
):
    rg = RagGuard(
        Retry(ServerEngine("http://127.0.0.1:9/v1"), Patience(base=0.01, cap=0.02)),
        store=tmp_path / "s.db",
        scorers=("utility",),
        when="run",
    )
    capture(rg, "before?")
    assert not await rg.aflush(2)
    report = await rg.aclose(1e6)  # or this goes on for days
    assert (report.pending, bool(report)) == (1, False)
