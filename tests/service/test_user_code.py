"""Code of the user's that fails or hangs in the service; runs that are scored from a stream, or captured alone."""

import asyncio
import threading
from contextlib import closing

import pytest
from support.program import run_program
from support.scripted_engine import ScriptedEngine

from ragguard import Passage, RagGuard
from ragguard.runtime.limiter import bounded
from ragguard.storage.sqlite.store import Store

QUESTION = "Who founded Corwell Mills?"
PASSAGES = ["Records show Ursula Almberg founded Corwell Mills."]


class Unprintable(Exception):
    def __str__(self):
        raise SystemExit(4)


ERRORS = [
    SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(), MemoryError(),
    BaseException("odd"), Unprintable(),
]  # fmt: skip
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


class RaisingScorer:
    name, version = "raising", "1"

    def __init__(self, error):
        self.error, self.asked = error, 0

    async def score(self, view, ask):
        self.asked += 1
        raise self.error


class RaisingSink:
    def __init__(self, error):
        self.error, self.given = error, 0

    async def submit(self, scored):
        self.given += 1
        raise self.error

    async def flush(self):
        raise self.error

    def undelivered(self):
        return {}

    async def aclose(self):
        raise self.error


def flushed(**settings):
    """Captures one run; returns the RagGuard, the run's id and what `flush` reports."""
    rg = RagGuard("nano", store=None, **settings)
    with rg.run(QUESTION) as run:
        run.retrieved(QUESTION, PASSAGES)
    return rg, run.id, rg.flush(20)


@each_error
def test_error_of_a_scorer_is_a_failure_of_that_scorer_alone(error):
    scorer = RaisingScorer(error)
    rg, run, report = flushed(scorers=["utility", scorer])
    with rg:
        assert (report.pending, report.failed, scorer.asked) == (0, 1, 1)
        assert {score.scorer for score in rg.scores(run)} == {"utility"}
        [failure] = rg.failures(run)
        raised = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
        assert (failure.scorer, failure.error) == ("raising", raised)


@each_error
def test_error_of_a_sink_is_counted_and_the_run_is_scored(error, caplog):
    sink = RaisingSink(error)
    rg, run, report = flushed(scorers=["utility"], sinks=[sink])
    assert (report.pending, report.scored, sink.given) == (0, 1, 1)
    assert [one[:2] for one in report.undelivered] == ["1 "]
    assert rg.scores(run)
    rg.close(10)
    assert caplog.text.count("RaisingSink failed") == 2, "taking and flushing are logged once each"


@each_error
@pytest.mark.parametrize("coroutine", [False, True], ids=["function", "coroutine function"])
def test_error_of_references_is_a_failure_and_the_rest_is_scored(error, coroutine):
    asked = []

    def function(question):
        asked.append(question)
        raise error

    async def coroutine_function(question):
        function(question)

    rg, run, report = flushed(scorers=["utility"], references=coroutine_function if coroutine else function)
    with rg:
        assert (report.pending, len(asked)) == (0, 1)
        assert {score.scorer for score in rg.scores(run)} == {"utility"}
        assert [one.scorer for one in rg.failures(run)] == ["references"]


def test_report_while_a_slow_str_holds_up_the_writer_says_that(
    tmp_path,
):
    entered, release = threading.Event(), threading.Event()

    class Slow:
        def __str__(self):
            entered.set()
            release.wait(60)
            return "slow"

    with RagGuard("nano", store=tmp_path / "runs.db", scorers=()) as rg:
        with rg.run("Who?") as run:
            run.retrieved("who", [Passage("Ada", metadata={"by": Slow()})])
        assert entered.wait(10)
        report = rg.flush(timeout=0.1)
        release.set()
        assert not report
        assert "a slow `__str__`, splitter or redaction of yours" in str(report)
        assert "no call" not in str(report)
        assert rg.flush(timeout=10)


async def test_a_stream_stops_what_is_under_way_when_nobody_listens_any_more():
    begun, ended = [], []

    async def work(number):
        begun.append(number)
        try:
            await asyncio.sleep(0 if number == 0 else 3600)
        finally:
            ended.append(number)
        return number

    stream = bounded(range(100), work, 5)
    async for number in stream:
        assert number == 0
        break
    await stream.aclose()
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 5


async def test_a_stream_takes_an_async_source():
    async def source():
        for number in range(10):
            yield number

    async def work(number):
        return number * 2

    assert sorted([done async for done in bounded(source(), work, 3)]) == list(range(0, 20, 2))


def capture(rg, runs=8):
    for number in range(runs):
        with rg.run(f"question {number}") as run:
            run.retrieved("who?", ["Ada"])


PROGRAM = """
import sys, threading
from ragguard import RagGuard

rg = RagGuard("nano", scorers=(), store=sys.argv[1] or None)
for number in range(8):
    with rg.run(f"question {number}") as run:
        run.retrieved("who?", ["Ada"])
report = rg.flush(60)
print(bool(report), report.captured, report.unscored, report.pending, report.scored, str(report).rsplit(" (", 1)[0])
print(sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("ragguard")))
rg.close()
"""


@pytest.mark.parametrize("kept", [True, False])
def test_no_scorer_is_started_and_the_report_tells_the_truth(tmp_path, kept):
    done = run_program(PROGRAM, tmp_path / "s.db" if kept else "")
    assert done.stdout.splitlines() == [
        "True 8 8 0 0 everything is stored: 8 kept without a score",
        "['ragguard-writer']",
    ]
    assert done.stderr == ""


def test_runs_that_another_process_has_to_score_are_left_to_it(tmp_path):
    with RagGuard("http://127.0.0.1:9/v1", store=tmp_path / "s.db", exit_timeout=0.1) as scoring:
        capture(scoring, 3)
        scoring.flush(0.1)
        scoring.close(0.1)
    with RagGuard(ScriptedEngine(), scorers=(), store=tmp_path / "s.db") as rg:
        capture(rg)
        assert rg.flush(30)
        rg.store.housekeep()
        assert rg.store.left().pending == 0
    with closing(Store(tmp_path / "s.db")) as again:
        again.housekeep()
        assert again.left().pending == 3
