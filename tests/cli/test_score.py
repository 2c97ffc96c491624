"""`ragguard score`: every line scored or told, resumed where it was stopped, exit codes that tell."""

import json
import os
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.commands import ragguard
from support.program import command, environment
from support.runs import a_run, as_events
from support.scripted_engine import ScriptedEngine
from support.traced import documents, otlp_json, span

from ragguard import Passage, RagGuard, RetrievalStep, Run, runs_from
from ragguard.errors import EngineRejected, EngineUnreachable
from ragguard.storage.files.runfile import write_runs
from ragguard.storage.sqlite import layout
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store

UTILITY = ("--scorers", "utility")


@pytest.fixture
def engine(monkeypatch):
    """Answers instead of nano, and keeps what it was asked."""
    scripted = ScriptedEngine(label=lambda text, label: 0.4)
    monkeypatch.setattr("ragguard.engines.connect.open_engine", lambda *args, **more: scripted)
    return scripted


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


score = partial(ragguard, "score", catch_exceptions=False)


def runs_file(count=3, name="runs.jsonl"):
    write_runs((a_run(f"r{number}") for number in range(count)), name)
    return name


def test_traces_are_scored_and_what_is_not_understood_is_said(engine):
    retriever = {"openinference__span__kind": "RETRIEVER"}
    found = [span(1, input__value="who", **retriever, **documents("a"))]
    found += [span(2, name="lost", trace="1" * 32, **retriever)]
    Path("traces.jsonl").write_text("".join(json.dumps(otlp_json(one)) + "\n" for one in found))
    done = score("traces.jsonl", *UTILITY, code=0)
    assert "1 run is in ragguard.db" in done.output
    assert "'lost' holds no documents" in " ".join(done.output.split())
    (run,) = StoreReader("ragguard.db").runs()
    assert run.id == f"{found[0].trace_id}-{found[0].span_id}"
    with open("traces.jsonl", "a") as file:
        file.write("{\n")
    done = score("traces.jsonl", *UTILITY)  # goes on where it was
    assert (done.exit_code, "1 of them" in done.output, "line 3 is not read" in done.output) == (
        1,
        True,
        True,
    )


def test_runs_may_come_through_a_pipe(engine, here):
    """As in `ragguard score <(zcat old.gz)`."""
    lines = (here / runs_file()).read_bytes()
    os.mkfifo("pipe")
    writing = threading.Thread(target=(here / "pipe").write_bytes, args=(lines,), daemon=True)
    writing.start()
    done = score("pipe", *UTILITY)
    writing.join(10)
    assert done.exit_code == 0, done.output
    assert "3 runs are in ragguard.db" in done.output


def test_scored_runs_are_not_asked_again(engine):
    score(runs_file(3), *UTILITY)
    asked = len(engine.calls)
    done = score(runs_file(5), *UTILITY, code=0)
    assert "5 runs are in ragguard.db, 3 of them were scored by an earlier command" in done.output
    fresh = {text for call in engine.calls[asked:] for text in call.texts}
    assert fresh  # the texts of the runs are equal; the two new runs alone are asked about
    store = StoreReader("ragguard.db")
    assert len(store.scores("r4")) == len(store.scores("r0"))


def test_a_store_that_is_in_use_keeps_what_comes_while_it_is_scored(engine):
    """Each run is read when its turn comes, and one that has not ended is left to its process."""
    with closing(Store("ragguard.db", scored=False)) as using:
        ended, later, still_open = (a_run(name) for name in ("ended", "later", "open"))
        for run in (ended, later):
            using.record(as_events(run))
        using.record(as_events(still_open)[:2])

        def meanwhile(call):
            using.record(as_events(still_open)[2:-1])
            using.add_due([replace(later, answer="another")])

        engine.fault = meanwhile
        said = score("ragguard.db", *UTILITY, "--concurrency", 1, code=0).output
        assert "ragguard.db: a run that has not ended is left out" in said
        assert using.run("later").answer == "another"
        assert (using.run("open").status, len(using.run("open").steps)) == ("open", 2)


def test_runs_that_an_earlier_command_left_unscored_count_as_scored_now(engine):
    """Its runs are due in the store, where the worker may come before the command's own turn."""
    file = runs_file(20)
    with closing(Store("ragguard.db")) as left:
        left.add_due(list(runs_from(file)))
    done = score(file, *UTILITY, "--concurrency", 1, code=0)
    assert "20 runs are in ragguard.db; asked now" in done.output
    assert "asked now: 0 requests" not in done.output


def test_bad_lines_are_told_with_number_and_reason_and_the_rest_is_scored(engine, here):
    runs_file(2)
    huge = json.dumps({"question": "who?", "steps": [{"passages": ["x" * 10_000_000]}]})
    bad = [
        b"{broken", b'{"steps": []}', b'{"format": "ragguard.run/7", "question": "q", "steps": []}',
        b'{"question": "", "steps": []}', huge.encode(), bytes(range(128, 256)),
    ]  # fmt: skip
    good = (here / "runs.jsonl").read_bytes().splitlines()
    (here / "runs.jsonl").write_bytes(b"\n".join([good[0], *bad, good[1]]) + b"\n")
    done = score("runs.jsonl", *UTILITY, code=1)
    for number, reason in enumerate(("JSON", "question", "format", "question", "passages", "UTF-8"), 2):
        assert f"runs.jsonl: line {number}, " in done.output
        assert reason in done.output
    assert "6 lines were rejected" in done.output
    store = StoreReader("ragguard.db")
    assert all(store.scores(run) for run in ("r0", "r1"))


def test_a_run_that_is_refused_is_told_and_counted_as_no_run_of_the_store(engine):
    write_runs([a_run("r0"), a_run("r1")], "runs.jsonl")
    write_runs([a_run("r0", question="something else?")], "more.jsonl")
    done = score("runs.jsonl", "more.jsonl", "--concurrency", 1, *UTILITY, code=1)
    assert "2 runs are in ragguard.db; asked now" in done.output
    assert "no run with another question" in done.output


def test_without_an_engine_words_are_scored_and_for_all_else_the_ways_are_said(here, monkeypatch):
    monkeypatch.delenv("RAGGUARD_ENGINE", raising=False)
    monkeypatch.setattr("ragguard.engines.connect.local_server", lambda: None)
    said = score(runs_file(), code=2).output
    assert said.startswith("ragguard score: no engine is named")
    assert said.count("\n") == 1
    assert all(way in said for way in ("OPENAI_BASE_URL", "--engine", "smol", "--scorers words"))
    assert not (here / "ragguard.db").exists()
    assert "0 requests" in (plan := score("runs.jsonl", "--scorers", "words", "--dry-run", code=0).output)
    assert "guess" not in plan
    assert "3 runs are in ragguard.db" in score("runs.jsonl", "--scorers", "words", code=0).output
    parts = ("--scorers", "words", "--on", "processes:1", "--out", "parts")
    assert "3 runs" in score("runs.jsonl", *parts, code=0).output


def test_the_same_run_in_two_files_is_one_run_and_is_said(engine):
    """Rows without an id are one run if they are equal; rows with an id if that is equal."""
    table = "question,contexts,answer\nWho founded A?,Ada did.,Ada\nWho founded B?,Bo did.,Bo\n"
    Path("a.csv").write_text(table)
    Path("b.csv").write_text(table.replace(",Bo\n", ",Cy\n"))
    said = " ".join(score("a.csv", "b.csv", *UTILITY, code=0).output.split())
    assert "3 runs are in ragguard.db; asked now" in said
    assert "1 line has a run that an earlier line has" in said
    assert StoreReader("ragguard.db").run_count() == 3
    again = " ".join(score("a.csv", *UTILITY, code=0).output.split())
    assert "2 runs are in ragguard.db, 2 of them were scored by an earlier command" in again
    for name, answer in (("c.csv", "Ada"), ("d.csv", "Bo")):
        Path(name).write_text(f"id,question,contexts,answer\n1,Who founded C?,Ada did.,{answer}\n")
    said = score("c.csv", "d.csv", "--concurrency", 1, *UTILITY, code=0).output
    assert "1 run is in ragguard.db" in said
    assert "1 line has a run" in said
    assert StoreReader("ragguard.db").run("1").answer == "Bo"


def test_an_engine_that_is_not_there_is_said_once(here):
    done = score(runs_file(), "--engine", "http://127.0.0.1:9/v1", *UTILITY, code=2)
    assert "127.0.0.1:9" in done.output
    assert done.output.count("\n") <= 3


def test_an_engine_that_dies_on_the_way_stops_it_and_loses_nothing(engine, monkeypatch):
    monkeypatch.setattr("ragguard.cli.score.GIVE_UP_AFTER", 3)
    alive = 4

    def fault(call):
        return EngineUnreachable("it went away") if len(engine.calls) > alive else None

    engine.fault = fault
    runs = [a_run(f"r{number}", question=f"who founded number {number}?") for number in range(20)]
    for run in runs:
        run.steps = run.steps[:1]
        run.steps[0].passages = run.steps[0].candidates = [type(run.steps[0].passages[0])(f"only {run.id}")]
    write_runs(runs, "runs.jsonl")
    done = score("runs.jsonl", "--concurrency", 1, *UTILITY, code=1)
    assert "gave no answer for 3 runs in a row" in done.output
    engine.fault = lambda call: None
    done = score("runs.jsonl", *UTILITY, code=0)
    store = StoreReader("ragguard.db")
    assert all(store.scores(run.id) for run in runs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.jsonl"], "could not be read"),
        (["runs.jsonl", "none.jsonl"], "none.jsonl could not be read"),
        (["runs.jsonl", "."], ". could not be read"),
        (["runs.jsonl", "--engine", "bogus"], "engine: got 'bogus'"),
        (["runs.jsonl", "--scorers", "belief,magic"], "scorers: got 'magic'"),
        (["runs.jsonl", "--prompts", "nowhere.toml"], "prompts: got 'nowhere.toml'"),
        (["runs.jsonl", "--store", "nowhere/s.db"], "no folder nowhere"),
        (["runs.jsonl", "--references", "none.jsonl"], "could not be read"),
        (["runs.jsonl", "--out", "nowhere/scores.jsonl"], "--out: got 'nowhere/scores.jsonl'"),
        (["runs.jsonl", "--concurrency", "0"], "--concurrency"),
        ([], "RUNS"),
    ],
)
def test_wrong_option_or_missing_file_is_exit_code_two(here, arguments, says):
    runs_file()
    done = score(*arguments, code=2)
    assert says in done.output
    assert not (here / "ragguard.db").exists(), "said before the work"


def test_a_dry_run_says_what_it_would_cost_and_asks_nothing(engine, here):
    done = score(runs_file(10), "--dry-run", *UTILITY, code=0)
    assert "scoring 10 runs would take up to" in done.output
    assert engine.calls == []
    assert not (here / "ragguard.db").exists()


def test_dry_run_without_its_server_says_that_its_counts_are_a_guess(engine, here, monkeypatch):
    guess = "a guess, since the model could not be asked: scoring 3 runs would take up to"
    assert guess not in score(runs_file(), "--dry-run", *UTILITY).output

    async def unreachable():
        raise EngineRejected("GET http://host/v1/models: connection refused")

    monkeypatch.setattr(engine, "info", unreachable)
    for on in ((), ("--on", "processes:1", "--out", "scores")):
        done = score("runs.jsonl", "--dry-run", *UTILITY, *on, code=0)
        assert guess in done.output
        assert done.output.count("connection refused") == 1


def test_references_come_from_a_file_of_their_own(engine, here):
    run = a_run()
    run.references = None
    write_runs([run], "runs.jsonl")
    (here / "gold.jsonl").write_text(
        json.dumps({"question": run.question, "references": ["Ada Berg"]}) + "\n"
    )
    score("runs.jsonl", "--references", "gold.jsonl", *UTILITY)
    assert StoreReader("ragguard.db").run("r1").references == ["Ada Berg"]
    (here / "gold.jsonl").write_text("{}\n")
    done = score("runs.jsonl", "--references", "gold.jsonl", *UTILITY, code=2)
    assert "gold.jsonl, line 1" in done.output


def test_scores_are_written_out(engine, here):
    score(runs_file(), "--out", "scores.jsonl", *UTILITY, code=0)
    lines = [json.loads(line) for line in (here / "scores.jsonl").read_text().splitlines()]
    assert {line["run_id"] for line in lines} == {"r0", "r1", "r2"}


def test_a_run_that_is_scored_into_another_store_is_found_there_by_the_application_s_id():
    with RagGuard("nano", store="first.db", scorers=()) as rg, rg.run("Who?", id="app-1") as run:
        run.retrieved("who", ["Ada"])
    score("first.db", "--store", "second.db", *UTILITY)
    assert StoreReader("second.db").run("app-1").id == run.id


def test_a_budget_that_is_spent_is_a_reason_and_not_a_crash(engine):
    done = score(runs_file(), "--max-tokens", 1, *UTILITY, code=1)
    assert "BudgetExceeded" in done.output


STOPPED = """
import sys, asyncio
import ragguard.engines.connect as connect
from support.scripted_engine import ScriptedEngine

class Slow(ScriptedEngine):
    async def _serve(self, call):
        await super()._serve(call)
        print("asked", flush=True)
        await asyncio.sleep(3)  # long enough for a signal to arrive on a busy machine

connect.open_engine = lambda *args, **more: Slow(label=lambda text, label: 0.4)
from ragguard.cli import main
sys.argv = ["ragguard", "score", "runs.jsonl", "--scorers", "utility", "--concurrency", "1"]
main()
"""


def test_an_interrupt_ends_it_and_the_same_command_goes_on(engine, here):
    runs = [a_run(f"r{number}", question=f"number {number}?") for number in range(30)]
    write_runs(runs, "runs.jsonl")
    stopped = subprocess.Popen(
        command(STOPPED), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        # Whoever starts the tests in the background of a shell has interrupts ignored, also by what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert stopped.stdout.readline() == "asked\n"
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 130, said
    assert "the same command continues from there" in said
    score("runs.jsonl", *UTILITY, code=0)
    store = StoreReader("ragguard.db")
    assert all(store.scores(run.id) for run in runs)


@pytest.mark.parametrize("when", ["at first", "on the way"])
def test_a_store_that_cannot_be_written_is_no_success(engine, monkeypatch, when):
    real, opened = layout.connect, []

    def connect(path, **more):
        connection = real(path, **more)
        if path is not None:
            opened.append(connection)
            if when == "at first":
                connection.execute("PRAGMA query_only = on")
        return connection

    def judging(text, label):
        for connection in opened:
            with suppress(sqlite3.ProgrammingError):
                connection.execute("PRAGMA query_only = on")
        return 0.4

    monkeypatch.setattr(layout, "connect", connect)
    monkeypatch.setattr("ragguard.cli.score.CLOSE_SECONDS", 0.2)
    engine.label = judging
    done = score(runs_file(30), *UTILITY, "--concurrency", 1, code=2)
    assert "ragguard.db cannot be written" in done.output
    assert "name another" in done.output


@pytest.mark.parametrize("on", [(), ("--on", "processes:1", "--out", "scores")])
def test_a_question_with_references_is_found_whatever_its_capitals_and_spaces(engine, here, on):
    run = replace(a_run(), references=None)
    write_runs([run], "runs.jsonl")
    line = {"question": f" {run.question.upper()}  ", "references": ["Ada Berg"]}
    (here / "refs.jsonl").write_text(json.dumps(line))
    done = score("runs.jsonl", *UTILITY, "--references", "refs.jsonl", "--dry-run", *on, code=0)
    assert "runs have references" not in done.output


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"question": "Who?"}, {"question": "who? "}, 2),
        ({"id": "r1"}, {"id": "r1", "question": "Who?"}, 2),
        ({"id": "r1"}, {"id": "R1"}, 0),
    ],
)
def test_lines_that_contradict_each_other_about_one_question_are_said(engine, here, first, second, code):
    lines = [first | {"references": ["x"]}, second | {"references": ["y"]}, first | {"references": ["x"]}]
    (here / "refs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = score(runs_file(), *UTILITY, "--references", "refs.jsonl", "--dry-run", code=code)
    assert ("refs.jsonl, line 2, references: got ['y']; allowed: ['x'], the references" in done.output) is (
        code == 2
    )


def test_runs_without_references_in_the_file_are_said(engine, here):
    (here / "refs.jsonl").write_text(json.dumps({"question": "Another?", "references": ["x"]}))
    write_runs((replace(a_run(f"r{number}"), references=None) for number in range(3)), "runs.jsonl")
    done = score("runs.jsonl", *UTILITY, "--references", "refs.jsonl", code=0)
    assert "0 of 3 runs have references: for the others, --references has neither" in done.output
    (here / "refs.jsonl").write_text(json.dumps({"id": "r1", "references": ["x"]}))
    assert "1 of 3 runs have references" in score(
        "runs.jsonl", *UTILITY, "--references", "refs.jsonl", "--store", "b.db"
    ).output.replace("\n", " ")


def test_files_without_a_run_are_refused(engine, here):
    (here / "none.jsonl").write_text("\n")
    done = score("none.jsonl", code=2)
    assert "there is none in them" in done.output
    ragguard("score", "-", input="", code=0)


def test_model_that_does_not_answer_with_labels_is_said_before_the_first_run(engine):
    engine.label = lambda text, label: 0.1 if label in "AB" else 0.4
    done = score(runs_file(), code=2)
    assert "asked for one of A, B and puts only 0.20 on them (at least 0.50 is needed)" in done.output
    assert len(engine.calls) == 1


def test_models_are_asked_one_label_and_one_sample_before_many_runs(engine):
    assert score(runs_file()).exit_code == 0
    first = [(call.verb, len(call.prompts)) for call in engine.calls[:3]]
    assert first == [("label_probs", 1), ("label_probs", 1), ("sample", 1)]


def test_failures_of_one_cause_are_one_line_whatever_their_numbers(engine):
    masses = iter(range(10_000))
    engine.label = lambda text, label: 0.1 + next(masses) % 7 / 100 if label in "AB" else 0.4
    first, second = a_run("r0"), a_run("r1", question="who else?")
    second.steps = second.steps[:1]
    second.steps[0].passages = second.steps[0].candidates = second.steps[0].passages[:1]
    write_runs([first, second], "runs.jsonl")
    done = score("runs.jsonl", "--scorers", "utility,coverage", code=1)
    assert "before the first run: " in done.output
    assert (
        done.output.count("LowLabelMass: the judge was asked for one of A, B and puts too little on them")
        == 1
    )
    assert done.output.count("LowLabelMass") == done.output.count(" x ") == 1
    assert "puts too little on them" in done.output


def test_real_text_on_nano_is_one_reason_and_nothing_plausible_is_stored(here):
    moon = RetrievalStep(
        query="first man on the Moon", passages=[Passage("Neil Armstrong stepped out first.")]
    )
    paris = RetrievalStep(query="capital of France", passages=[Passage("Paris is the capital of France.")])
    runs = [
        Run(id="moon", question="Who was the first man on the Moon?", references=["him"], steps=[moon]),
        Run(id="paris", question="What is the capital of France?", references=["Paris"], steps=[paris]),
    ]
    write_runs(runs, "real.jsonl")
    done = score("real.jsonl", code=1)
    assert done.output.count("nano does not know too many of the words of a prompt") == 1
    store = StoreReader("ragguard.db")
    assert {one.scorer for run in runs for one in store.scores(run.id)} == {"words"}


def test_engine_text_is_no_command_to_the_terminal(engine, caplog):
    def refuse(*args, **more):
        raise EngineRejected("HTTP 400: \x1b[2J\x1b]0;owned\x07 \x9b31m")

    engine.label_probs = refuse
    done = score(runs_file(), *UTILITY, code=1)
    assert "owned" in done.output
    assert not set(done.output + caplog.text) & set("\x1b\x07\x9b")
