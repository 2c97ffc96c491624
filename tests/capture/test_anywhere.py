"""Retrievals of plain code find the run they are in, by context; outside of any they are said once and cost nothing."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.documents import Document

import ragguard
from ragguard.capture.handle import RunHandle
from ragguard.capture.recorder import Recorder
from ragguard.errors import InvalidInput
from ragguard.records import Passage


@pytest.fixture
def recorder(captured):
    recorder = Recorder(captured)
    yield recorder
    assert (recorder.faults.count, len(recorder.here.runs), len(recorder.here.steps)) == (0, 0, 0)


@ragguard.retrieval
def search(query: str, k: int = 1) -> list[Document]:
    return [Document(f"about {query}", id=str(n)) for n in range(k)]


def steps(captured):
    return [(step.query, [p.text for p in step.passages]) for step in captured.run.steps]


def test_a_retrieval_is_recorded_in_the_run_around_it(recorder, captured):
    with RunHandle(recorder, "who?") as run:
        assert ragguard.current_run() is run
        step_id = ragguard.retrieved("hop", [(Document("a", id="7"), 0.5), Passage("b")], tool="search")
    (step,) = captured.run.steps
    assert (step.id, step.run_id, step.query, step.tool) == (step_id, run.id, "hop", "search")
    assert step.passages == [Passage("a", "7", 0.5), Passage("b")]
    assert ragguard.current_run() is None


@pytest.mark.parametrize(
    "call",
    [lambda: search("hop"), lambda: search(query="hop"), lambda: search(k=1, query="hop")],
)
def test_a_decorated_function_is_a_step_with_its_query_and_what_it_returned(recorder, captured, call):
    with RunHandle(recorder, "who?"):
        assert call() == [Document("about hop", id="0")]
    assert steps(captured) == [("hop", ["about hop"])]
    assert search.__name__ == "search"


def test_the_query_may_have_another_name_and_the_tool_one_of_its_own(recorder, captured):
    @ragguard.retrieval(query="text", tool="index")
    def lookup(index: str, text: str) -> list[str]:
        return [f"{index}: {text}"]

    class Store:
        @ragguard.retrieval
        def find(self, limit: int, question: str) -> dict[str, list[str]]:
            return {"documents": ["x"] * limit}

    with RunHandle(recorder, "who?"):
        lookup("towns", "hop 1")
        Store().find(2, "hop 2")
    assert steps(captured) == [("hop 1", ["towns: hop 1"]), ("hop 2", ["x", "x"])]
    assert [step.tool for step in captured.run.steps] == ["index", ""]


async def test_async_functions_too_and_generators_and_names_of_no_argument_are_refused(recorder, captured):
    @ragguard.retrieval
    async def asearch(query: str) -> tuple[str, list[Document]]:
        await asyncio.sleep(0)
        return "as text", [Document("a")]

    def page(query: str):
        yield Document("b")

    async def apage(query: str):
        yield Document("c")

    async with RunHandle(recorder, "who?"):
        assert await asearch("1") == ("as text", [Document("a")])
    assert steps(captured) == [("1", ["a"])]
    with pytest.raises(InvalidInput, match=r"^query: got 'typo'"):
        ragguard.retrieval(query="typo")(lambda question: [])
    for generator in (page, apage):
        with pytest.raises(InvalidInput, match=r"call ragguard.retrieved\(...\) itself"):
            ragguard.retrieval(generator)


def test_an_error_goes_on_and_is_a_failed_step(recorder, captured):
    @ragguard.retrieval
    def broken(query: str):
        raise ConnectionError("no index")

    with RunHandle(recorder, "who?"), pytest.raises(ConnectionError):
        broken("hop")
    (step,) = captured.run.steps
    assert (step.status, step.error) == ("error", "ConnectionError: no index")


@pytest.mark.parametrize("lazy", [iter, lambda found: map(str, found)], ids=["iter", "map"])
def test_iterator_that_a_function_returns_is_the_callers_to_read(recorder, captured, caplog, lazy):
    @ragguard.retrieval
    def lazily(query: str):
        return lazy([f"{query} a", f"{query} b"])

    with RunHandle(recorder, "who?"):
        assert list(lazily("all")) == ["all a", "all b"]
    assert "iterator" in captured.run.steps[0].passages[0].metadata["ragguard.content"] or lazy is not iter
    assert "Return a list" in caplog.text


def test_retrievals_inside_a_decorated_one_are_parts_of_it(recorder, captured):
    @ragguard.retrieval
    def both(query: str):
        return search(f"{query} 1") + search(f"{query} 2")

    with RunHandle(recorder, "who?"):
        both("hop")
        search("next")
    first, second = captured.run.steps
    assert (first.query, [part.query for part in first.sub_steps]) == ("hop", ["hop 1", "hop 2"])
    assert (second.query, second.sub_steps) == ("next", [])


async def test_tasks_and_threads_to_which_the_context_is_copied_are_inside(recorder, captured):
    async with RunHandle(recorder, "who?"):
        await asyncio.gather(
            asyncio.to_thread(search, "1"), asyncio.create_task(asyncio.to_thread(search, "2"))
        )
        with ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, search, "3").result()
    assert sorted(step.query for step in captured.run.steps) == ["1", "2", "3"]


def test_outside_of_any_run_it_is_said_once_with_the_way_out_and_nothing_is_recorded(
    captured, recorder, caplog
):
    assert ragguard.retrieved("hop", ["a"]) == ""
    assert search("hop") == [Document("about hop", id="0")]
    with RunHandle(recorder, "who?"):
        thread = threading.Thread(target=search, args=("lost",))
        thread.start()
        thread.join()
    assert captured.run.steps == []
    (warning,) = [one for one in caplog.records if "outside of any run" in one.getMessage()]
    assert "rg.run(question)" in warning.getMessage()
    assert "asyncio.to_thread" in warning.getMessage()


def test_nothing_is_captured_in_a_pause(recorder, captured, caplog):
    with RunHandle(recorder, "who?") as run:
        search("before")
        with ragguard.paused():
            assert ragguard.current_run() is None
            search("not seen")
            run.retrieved("not seen", ["a"])
            with RunHandle(recorder, "an evaluator's") as inner, ragguard.paused():
                inner.retrieved("not seen", ["a"])
            search("not seen")
        search("after")
    assert steps(captured) == [("before", ["about before"]), ("after", ["about after"])]
    assert "outside of any run" not in caplog.text
