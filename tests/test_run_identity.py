"""A run id is one run: used twice it names two runs with two ids, unless the second says that it continues."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.program import run_program

import ragguard
from ragguard import Passage, RagGuard, Run
from ragguard.capture import given_ids
from ragguard.errors import InvalidInput


@pytest.fixture
def make(tmp_path):
    made = []

    def guard(**more):
        made.append(RagGuard("nano", **{"store": tmp_path / "s.db", "scorers": (), **more}))
        return made[-1]

    yield guard
    for one in made:
        one.close(2.0)


def told(rg):
    """Everything that is stored, by run id."""
    assert rg.flush(30)
    return {
        run.id: (
            run.question,
            run.references,
            [(step.index, step.query) for step in run.steps],
            run.answer,
            run.status,
        )
        for run in rg.runs()
    }


def capture(rg, question, *hops, **more):
    with rg.run(question, references=[f"of {question}"], **more) as run:
        for hop in hops:
            run.retrieved(hop, [Passage(f"about {hop}")])
        run.answered(f"to {question}")
    return run


def whole(question, *hops):
    return (question, [f"of {question}"], list(enumerate(hops)), f"to {question}", "ok")


@pytest.mark.parametrize("store", ["file", "memory"])
def test_an_id_used_again_after_its_run_has_ended(make, caplog, store):
    rg = make(**({} if store == "file" else {"store": None}))
    first, second = capture(rg, "one", "1", "2", id="x"), capture(rg, "two", "3", id="x")
    assert first.id == "x" != second.id
    assert told(rg) == {"x": whole("one", "1", "2"), second.id: whole("two", "3")}
    assert {run.id: run.metadata.get("ragguard.asked_id") for run in rg.runs()} == {"x": None, second.id: "x"}
    (warning,) = [record.getMessage() for record in caplog.records if "run id" in record.getMessage()]
    assert "'x'" in warning
    assert second.id in warning
    assert "resume=True" in warning


@pytest.mark.parametrize("store", ["file", "memory"])
async def test_an_id_used_by_two_runs_at_once(make, store):
    rg = make(**({} if store == "file" else {"store": None}))
    both = asyncio.Barrier(2)

    async def one(question):
        async with rg.run(question, references=[f"of {question}"], id="x") as run:
            await both.wait()
            run.retrieved(f"{question} 1", [Passage("a")])
            await both.wait()
            run.retrieved(f"{question} 2", [Passage("b")])
            run.answered(f"to {question}")
        return run

    one_run, two_run = await asyncio.gather(one("one"), one("two"))
    assert sorted(told(rg).values()) == [whole("one", "one 1", "one 2"), whole("two", "two 1", "two 2")]
    assert "x" in (one_run.id, two_run.id)
    assert one_run.id != two_run.id


def test_an_id_used_again_after_a_restart(make, caplog):
    capture(first := make(), "one", "1", id="x")
    first.close()
    rg = make()
    second = capture(rg, "two", "2", "3", id="x")
    assert told(rg) == {"x": whole("one", "1"), second.id: whole("two", "2", "3")}
    assert second.id != "x"
    assert rg.store.run(second.id).metadata["ragguard.asked_id"] == "x"
    assert f"recorded as {second.id!r}" in caplog.text


def test_steps_seen_before_the_id_was_known_say_the_id_that_was_asked_for_and_are_stored_right(make):
    capture(first := make(), "one", "1", id="x")
    first.close()
    rg = make()
    with rg.run("two", id="x") as run:
        run.retrieved("2", [Passage("a")])
        assert run.steps[0].query == "2"  # read, and so built, before the writer has looked
        rg.flush(10)
        assert run.id != "x"
        run.retrieved("3", [Passage("b")])
    assert [step for _, _, step, _, _ in told(rg).values()] == [[(0, "1")], [(0, "2"), (1, "3")]]


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
    runs = list(make().runs())
    assert len({run.id for run in runs}) == 100
    assert {f"run-{n}" for n in range(50)} < {run.id for run in runs}
    for run in runs:
        assert run.references == [run.question] == [run.answer]
        assert [(step.index, step.query) for step in run.steps] == [(0, run.question)]
        assert run.metadata.get("ragguard.asked_id", run.id).startswith("run-")


def test_the_run_continues_where_it_says_so(make, caplog):
    rg = make()
    capture(rg, "one", "1", "2", id="x")
    with rg.run(id="x", resume=True) as run:
        run.retrieved("3", [Passage("c")])
        run.answered("at last")
    assert run.id == "x"
    assert told(rg) == {"x": ("one", ["of one"], [(0, "1"), (1, "2"), (2, "3")], "at last", "ok")}
    assert [step.turn for step in rg.runs()[0].steps] == [0, 1, 2]
    assert "run id" not in caplog.text


def test_resuming_what_is_not_there_begins_it(make):
    rg = make()
    capture(rg, "one", "1", id="x", resume=True)
    assert told(rg) == {"x": whole("one", "1")}


def test_resuming_a_run_that_is_open_joins_it(make):
    rg = make()
    with rg.run("one", id="x") as outer:
        outer.retrieved("1", [Passage("a")])
        with rg.run("two", id="x", resume=True) as inner:
            inner.retrieved("2", [Passage("b")])
            inner.answered("inner's")
        assert [step.query for step in inner.steps] == ["1", "2"]
        outer.retrieved("3", [Passage("c")])
    assert told(rg) == {"x": ("one", None, [(0, "1"), (1, "2"), (2, "3")], "inner's", "ok")}


def test_resume_needs_an_id(make):
    with pytest.raises(InvalidInput, match="resume"):
        make().run("one", resume=True)


CONTINUES = """
import os, signal, sys
from ragguard import Passage, RagGuard

path, question, hop, answer, end = sys.argv[1:]
rg = RagGuard("nano", store=path, scorers=())
run = rg.run(question, id="x", resume=True)
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
    assert told(make()) == {"x": ("one", None, [(0, "1"), (1, "2")], "Ada", "ok")}


def test_the_end_of_an_earlier_part_does_not_end_a_later_one(make, tmp_path):
    """A worker that is still at it when another one takes over, and stops afterwards."""
    one, two = make(), make()
    with one.run("one", id="x") as first:
        first.retrieved("1", [Passage("a")])
        one.flush(10)
        with two.run(id="x", resume=True) as second:
            second.retrieved("2", [Passage("b")])
            two.flush(10)
            second.answered("Ada")
        two.flush(10)
        first.answered("too late")
    one.flush(10)
    assert told(two) == {"x": ("one", None, [(0, "1"), (1, "2")], "Ada", "ok")}


async def test_run_that_is_given_to_score_replaces_the_stored_one(make):
    rg = make()
    await rg.score(Run("x", "one", answer="first"))
    await rg.score(Run("x", "one", answer="second"))
    assert told(rg)["x"][3] == "second"
    captured = capture(rg, "two", "2", id="x")
    assert told(rg)[captured.id] == whole("two", "2")
    assert captured.id != "x"


async def test_scoring_a_handle_scores_the_run_that_it_is(make):
    capture(first := make(), "one", "1", id="x")
    first.close()
    rg = make(scorers=("utility",))
    run = capture(rg, "two", "2", id="x")
    scores = await rg.score(run)
    assert {score.run_id for score in scores} == {run.id} != {"x"}


def test_ids_of_many_threads(make):
    rg = make()
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda n: capture(rg, f"q{n}", f"h{n}", id=f"id-{n % 10}"), range(100)))
    assert told(rg) == {run.id: whole(f"q{n}", f"h{n}") for n, run in enumerate(runs)}


def test_ids_that_this_process_has_forgotten_are_found_in_the_store(make, monkeypatch):
    rg = make()
    capture(rg, "one", "1", id="x")
    monkeypatch.setattr(given_ids, "IDS_KEPT", 1)
    capture(rg, "other", "0", id="y")
    capture(rg, "another", "0", id="z")
    second = capture(rg, "two", "2", id="x")
    assert told(rg)["x"] == whole("one", "1")
    assert told(rg)[second.id] == whole("two", "2")


def test_the_current_run_says_its_id_too(make):
    capture(first := make(), "one", "1", id="x")
    first.close()
    rg = make()
    with rg.run("two", id="x"):
        rg.flush(10)
        assert ragguard.current_run().id not in ("", "x")


def test_an_id_is_free_again_once_its_run_is_deleted(make):
    rg = make()
    capture(rg, "one", "1", id="x")
    rg.flush(10)
    assert rg.delete("x")
    capture(rg, "two", "2", id="x")
    assert told(rg) == {"x": whole("two", "2")}


def test_run_that_is_not_recorded_takes_no_id(make, caplog):
    rg = make()
    with ragguard.paused():
        capture(rg, "one", "1", id="x")
    capture(rg, "two", "2", id="x")
    unsampled = make(store=None, sample_rate=0.0)
    assert {capture(unsampled, question, id="y").id for question in ("one", "two")} == {"y"}
    assert told(rg) == {"x": whole("two", "2")}
    assert "run id" not in caplog.text


def test_deleting_a_run_forgets_what_it_waited_for(make, tmp_path):
    rg = make()
    rg.recorder.run_started("x", "one")
    rg.recorder.run_ended("x", status="interrupted", waits_for="langgraph:secret-thread")
    assert rg.flush(10)
    rg.delete("x")
    rg.close()
    assert json.dumps("secret-thread")[1:-1].encode() not in (tmp_path / "s.db").read_bytes()
