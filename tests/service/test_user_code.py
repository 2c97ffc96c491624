"""Code of the user's that raises costs its own result alone: other scores are kept, nothing is tried without end."""

import asyncio
import threading

import pytest

from ragguard import Passage, RagGuard

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


def test_a_scorer_whose_own_task_was_cancelled_has_failed():
    class Cancelling:
        name, version = "cancelling", "1"

        async def score(self, view, ask):
            other = asyncio.ensure_future(asyncio.Event().wait())
            other.cancel()
            await other

    rg, run, report = flushed(scorers=["utility", Cancelling()])
    with rg:
        assert report.pending == 0
        assert {score.scorer for score in rg.scores(run)} == {"utility"}
        assert [one.scorer for one in rg.failures(run)] == ["cancelling"]


def test_results_that_raise_as_they_are_read_are_a_failure_of_their_scorer():
    class Lazy:
        name, version = "lazy", "1"

        async def score(self, view, ask):
            def results():
                raise SystemExit(3)
                yield

            return results()

    rg, run, report = flushed(scorers=["utility", Lazy()])
    with rg:
        assert report.pending == 0
        assert {score.scorer for score in rg.scores(run)} == {"utility"}
        assert [(one.scorer, one.error) for one in rg.failures(run)] == [("lazy", "SystemExit")]


@each_error
def test_error_of_a_sink_is_counted_and_the_run_is_scored(error, caplog):
    sink = RaisingSink(error)
    rg, run, report = flushed(scorers=["utility"], sinks=[sink])
    assert (report.pending, report.scored, sink.given) == (0, 1, 1)
    assert [one.count for one in report.undelivered] == [1]
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
        assert "a `__str__`, a splitter or a redaction of yours that takes long" in str(report)
        assert "no call" not in str(report)
        assert rg.flush(timeout=10)
