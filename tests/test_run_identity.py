"""Each run has an id of its own; what the application calls it stands beside it; `resume=` goes on with a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from support.program import run_program

from ragguard import Passage, RetrievalStep, Run
from ragguard.capture.events import RunEnded, RunNames, RunStarted, StepEnded
from ragguard.storage.sqlite.store import Store


def stored(rg):
    """Everything that is stored, in the order of capture, each run with the id that the application gave it."""
    assert rg.flush(30)
    runs = list(rg.runs())
    assert len({run.id for run in runs}) == len(runs)
    return [
        (
            run.metadata.get("ragguard.caller_id"),
            run.question,
            run.references,
            [(step.index, step.query) for step in run.steps],
            run.answer,
            run.status,
        )
        for run in runs
    ]


def capture(rg, question, *hops, **more):
    with rg.run(question, references=[f"of {question}"], **more) as run:
        for hop in hops:
            run.retrieved(hop, [Passage(f"about {hop}")])
        run.answered(f"to {question}")
    return run


def whole(id, question, *hops):
    return (id, question, [f"of {question}"], list(enumerate(hops)), f"to {question}", "ok")


@pytest.mark.parametrize("store", ["file", "memory"])
def test_id_used_again_after_its_run_has_ended_names_the_latest_run(make, caplog, store):
    rg = make(scorers=(), **({} if store == "file" else {"store": None}))
    first, second = capture(rg, "one", "1", "2", id="x"), capture(rg, "two", "3", id="x")
    assert stored(rg) == [whole("x", "one", "1", "2"), whole("x", "two", "3")]
    assert rg.store.run("x").id == second.id
    assert [run.id for run in rg.runs()] == [first.id, second.id]
    assert "was given to two runs" not in caplog.text


@pytest.mark.parametrize("store", ["file", "memory"])
async def test_id_of_a_live_run_is_refused_a_merge_with_one_warning(make, store, caplog):
    rg = make(scorers=(), **({} if store == "file" else {"store": None}))
    both = asyncio.Barrier(2)

    async def one(question):
        async with rg.run(question, references=[f"of {question}"], id="x") as run:
            await both.wait()
            run.retrieved(f"{question} 1", [Passage("a")])
            await both.wait()
            run.retrieved(f"{question} 2", [Passage("b")])
            run.answered(f"to {question}")
        return run

    _, second = await asyncio.gather(one("one"), one("two"))
    assert stored(rg) == [whole("x", "one", "one 1", "one 2"), whole("x", "two", "two 1", "two 2")]
    (warning,) = [one.getMessage() for one in caplog.records if "was given to two runs" in one.getMessage()]
    assert "'x'" in warning
    assert repr(second.id) in warning
    assert "resume=" in warning


CAPTURES = """
import sys
from ragguard import Passage, RagGuard

path, question, count = sys.argv[1:]
rg = RagGuard("nano", store=path, scorers=())
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(count)):
    with rg.run(question, references=[question], id=f"run-{n}") as run:
        run.retrieved(question, [Passage(question)])
        run.answered(question)
assert rg.flush(60)
rg.close()
"""


def test_two_processes_at_once_on_one_store(make, tmp_path):
    import subprocess

    from support.program import command, environment

    processes = [
        subprocess.Popen(
            command(CAPTURES, tmp_path / "s.db", question, 50), env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for question in ("one", "two")
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    runs = list(make(scorers=()).runs())
    assert len({run.id for run in runs}) == 100
    for run in runs:
        assert run.references == [run.question] == [run.answer]
        assert [(step.index, step.query) for step in run.steps] == [(0, run.question)]
        assert run.metadata["ragguard.caller_id"].startswith("run-")


def test_the_run_continues_where_it_says_so(make, caplog):
    rg = make(scorers=())
    capture(rg, "one", "1", "2", id="x")
    with rg.run(resume="x") as run:
        run.retrieved("3", [Passage("c")])
        run.answered("at last")
    assert stored(rg) == [("x", "one", ["of one"], [(0, "1"), (1, "2"), (2, "3")], "at last", "ok")]
    assert [step.turn for step in rg.runs()[0].steps] == [0, 1, 2]
    assert rg.store.run(run.id).id == rg.runs()[0].id != run.id, "the part's own id finds the run, too"
    assert "was given to two runs" not in caplog.text


def test_resuming_what_is_not_there_begins_it_and_the_log_says_so(make, caplog):
    rg = make(scorers=())
    capture(rg, "one", "1", id="conversation-7")
    capture(rg, "two", "2", resume="conversation-8")
    capture(rg, "three", "3", resume="conversation-7")
    assert [run[0] for run in stored(rg)] == ["conversation-7", "conversation-8"]
    (warning,) = [line for line in caplog.messages if "resume" in line]
    assert "no run 'conversation-8' is in this store" in warning
    assert "ragguard report" in warning


def test_resuming_a_run_that_is_open_joins_it(make):
    rg = make(scorers=())
    with rg.run("one", id="x") as outer:
        outer.retrieved("1", [Passage("a")])
        with rg.run("two", resume="x") as inner:
            inner.retrieved("2", [Passage("b")])
            inner.answered("inner's")
        assert [step.query for step in inner.steps] == ["1", "2"]
        outer.retrieved("3", [Passage("c")])
    assert stored(rg) == [("x", "one", None, [(0, "1"), (1, "2"), (2, "3")], "inner's", "ok")]


CONTINUES = """
import os, signal, sys
from ragguard import Passage, RagGuard

path, question, hop, answer, end = sys.argv[1:]
rg = RagGuard("nano", store=path, scorers=())
run = rg.run(question, resume="x")
run.__enter__()
run.retrieved(hop, [Passage(hop)])
run.answered(answer or None)
if end == "kill":
    rg.flush(30)
    os.kill(os.getpid(), signal.SIGKILL)
run.__exit__(None, None, None)
assert rg.flush(30)
rg.close()
"""


@pytest.mark.parametrize("end", ["end", "kill"])
def test_a_run_continues_in_another_process_also_after_a_kill(make, tmp_path, end):
    run_program(CONTINUES, tmp_path / "s.db", "one", "1", "", end, check=end == "end")
    run_program(CONTINUES, tmp_path / "s.db", "", "2", "Ada", "end")
    assert stored(make(scorers=())) == [("x", "one", None, [(0, "1"), (1, "2")], "Ada", "ok")]


def test_the_end_of_an_earlier_part_does_not_end_a_later_one(make, tmp_path):
    """A worker that is still at it when another one takes over, and stops afterwards."""
    one, two = make(scorers=()), make(scorers=())
    with one.run("one", id="x") as first:
        first.retrieved("1", [Passage("a")])
        one.flush(10)
        with two.run(resume="x") as second:
            second.retrieved("2", [Passage("b")])
            two.flush(10)
            second.answered("Ada")
        two.flush(10)
        first.answered("too late")
    one.flush(10)
    assert stored(two) == [("x", "one", None, [(0, "1"), (1, "2")], "Ada", "ok")]


async def test_run_that_is_given_to_score_replaces_the_stored_one_and_no_captured_one(make):
    rg = make(scorers=())
    await rg.score(Run("x", "one", answer="first"))
    await rg.score(Run("x", "one", answer="second"))
    capture(rg, "two", "2", id="x")
    assert stored(rg) == [(None, "one", None, [], "second", "ok"), whole("x", "two", "2")]
    assert rg.store.run("x").question == "one", "a run's own id comes first"


def test_delete_by_the_application_s_id_removes_all_runs_of_that_id(make):
    rg = make(scorers=())
    for question in ("one", "two"):
        capture(rg, question, "1", id="x")
    capture(rg, "three", "1", id="y")
    assert rg.delete("x")
    assert [question for _, question, *_ in stored(rg)] == ["three"]


def test_parts_of_a_run_are_sampled_alike_and_it_is_one_of_its_share(make):
    rg = make(store=None, scorers=(), sample_rate=0.5)
    for n in range(200):
        for given in ({"id": f"x{n}"}, {"resume": f"x{n}"}):
            with rg.run("q", **given) as run:
                run.retrieved("hop", [Passage("a")])
    rg.flush(30)
    assert {len(run.steps) for run in rg.runs()} == {2}
    assert 70 < len(rg.runs()) < 130


def test_ids_of_steps_that_the_application_gives_stand_beside_their_own(make):
    rg = make(scorers=())
    for given in ({"id": "conv"}, {"resume": "conv"}):
        with rg.run("q", **given) as run:
            ids = [run.retrieved(query, [query], id="call_1") for query in ("one", "two")]
            assert ids == [step.id for step in run.steps]
            rg.recorder.step_amended(ids[1], run.id, error="the tool failed")
    assert rg.flush(30)
    steps = rg.store.run("conv").steps
    assert [(step.index, step.query, step.status) for step in steps] == [
        (0, "one", "ok"), (1, "two", "error"), (2, "one", "ok"), (3, "two", "error"),
    ]  # fmt: skip
    assert {step.metadata["ragguard.caller_id"] for step in steps} == {"call_1"}
    assert len({step.id for step in steps}) == 4


def part(id, begun, names, *queries):
    """The events of one part of a run."""
    made = [
        RetrievalStep(
            f"{id}-{n}", id, n, n, query=query, passages=[Passage(query)], candidates=[Passage(query)],
            started_ns=begun + n, ended_ns=begun + n + 1, status="ok",
        )
        for n, query in enumerate(queries)
    ]  # fmt: skip
    start = RunStarted(
        Run(id, "q", status="open", started_ns=begun, metadata={"ragguard.caller_id": "conv"}), names
    )
    return [start, *(StepEnded(replace(step)) for step in made), RunEnded(id, ended_ns=begun + 50)]


@pytest.mark.parametrize("apart", [False, True])
def test_writing_the_same_events_again_changes_nothing(tmp_path, apart):
    store = Store(tmp_path / "s.db")
    batches = [
        part("a", 100, RunNames("conv"), "one", "two"),
        part("b", 200, RunNames("conv", resumes=True), "three"),
    ]
    for events in batches if apart else [[*batches[0], *batches[1]]]:
        for _ in range(3):
            store.record(list(events))
    (run,) = store.runs()
    assert [(step.index, step.query) for step in run.steps] == [(0, "one"), (1, "two"), (2, "three")]
    assert (run.id, run.status) == ("a", "ok")
    store.close()
