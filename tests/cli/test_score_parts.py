"""`ragguard score --on`: what cannot be done is one sentence before anything is written; a dry run; what is said."""

import json
from functools import partial

import pytest
from support.commands import ragguard, refusal
from support.parts import ExecutorHere
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard.errors import EngineUnreachable, StoreError
from ragguard.storage.files.runfile import write_runs
from ragguard.storage.sqlite.store import Store

ON = ("--on", "processes:1")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with runs, and other things."""
    monkeypatch.chdir(tmp_path)
    write_runs((a_run(f"r{number}") for number in range(3)), "runs.jsonl")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty.jsonl").touch()
    Store(tmp_path / "runs.db").close()
    return tmp_path


score = partial(ragguard, "score")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.jsonl"], "missing.jsonl does not exist; name files and folders"),
        (["runs.jsonl", "missing.jsonl"], "missing.jsonl does not exist"),
        (["nothing"], "nothing has no files with runs"),
        (["empty.jsonl"], "there are no runs in empty.jsonl"),
        (["runs.db"], "is a store, which one process reads: score it without --on"),
        (["-"], "several processes can read"),
        (["runs.jsonl", "--store", "x.db"], "--store: got 'x.db'; allowed: nothing beside --on"),
        (["runs.jsonl", "--max-tokens", "9"], "--max-tokens: got 9; allowed: nothing beside --on"),
        (["runs.jsonl", "--engine", "http://127.0.0.1:9/v1"], "127.0.0.1:9"),
        (["runs.jsonl", "--engine", "nonsense"], "engine: got 'nonsense'; allowed: nano, "),
        (["runs.jsonl", "--scorers", "nonsense"], "scorers: got 'nonsense'"),
        (["runs.jsonl", "--prompts", "nonsense"], "prompts: got 'nonsense'"),
        (["runs.jsonl", "--engine-args", "{"], "--engine-args: got '1 character'; allowed: a JSON object"),
        (["runs.jsonl", "--engine-args", '{"x": 1}'], "only vllm:MODEL takes them"),
        (["runs.jsonl", "--on", "nonsense"], "--on: got 'nonsense'; allowed: processes"),
        (["runs.jsonl", "--on", "processes:0"], "workers: got 0"),
        (["runs.jsonl", "--gpus", "0.5"], "--gpus: got 0.5; allowed: nothing without --on ray"),
        (["s3://bucket/runs"], "mount the object store, or copy from and to it"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)  # fmt: skip
def test_wrong_option_or_input_is_one_sentence_before_anything_is_written(here, words, says):
    before = sorted(here.iterdir())
    line = refusal("score", *ON, "--out", "out", *words)
    assert line.startswith("ragguard score: ")
    assert says in line
    assert sorted(here.iterdir()) == before


def test_a_folder_for_the_scores_is_needed():
    assert "--out: got ''; allowed: a folder for the scores" in score("runs.jsonl", *ON, "--out", "").output
    assert (
        "check the path and its permissions"
        in score("runs.jsonl", *ON, "--out", "empty.jsonl/x", "--scorers", "utility").output
    )
    done = score("runs.jsonl", *ON)
    assert (done.exit_code, done.output) == (
        2, "ragguard score: --out: got None; allowed: a folder for the scores, with --on\n"
    )  # fmt: skip
    done = score("runs.jsonl", "--engine-args", '{"hf_token": "a-key"}', code=2)
    assert "--engine-args: got '21 characters'; allowed: nothing without --on" in done.output


def test_a_dry_run_names_the_lines_that_it_cannot_read(here):
    broken = {"id": "x", "question": "", "steps": []}
    with open("runs.jsonl", "a") as file:
        file.write(f"{json.dumps(broken)}\nno JSON\n")
    found = score("runs.jsonl", "--scorers", "utility", "--dry-run")
    parts = score("runs.jsonl", "--scorers", "utility", "--dry-run", "--on", "processes:2", "--out", "scores")
    for done in (found, parts):
        assert done.exit_code == 1, done.output
        assert "question: got ''" in done.output
        assert "JSON: got 'no JSON" in done.output
        assert "2 lines were rejected, see above; mend them and" in done.output
    assert not (here / "scores").exists()


def test_a_dry_run_plans_all_parts_and_writes_nothing(here):
    words = ("runs.jsonl", "--scorers", "utility", "--dry-run")
    whole = score(*words, "--store", "x.db")
    parts = score(*words, *ON, "--out", "out", code=0)
    assert parts.output == whole.output
    assert not (here / "out").exists()


def test_broken_lines_are_told_with_file_and_line(here):
    lines = (here / "runs.jsonl").read_bytes()
    (here / "runs.jsonl").write_bytes(b"{\n" + lines + b"[]\n")
    done = score("runs.jsonl", *ON, "--out", "out", "--scorers", "utility", code=1)
    assert f"{here / 'runs.jsonl'}: line 1, byte 0, JSON: got '{{" in done.output
    assert (
        f"{here / 'runs.jsonl'}: line 5, byte {2 + len(lines)}, line: got []; allowed: an object"
        in done.output
    )
    assert "3 runs are in" in done.output
    assert "2 lines were rejected" in done.output
    again = score("runs.jsonl", *ON, "--out", "out", "--scorers", "utility", code=1)
    assert "3 of them were scored by an earlier command; asked now: 0 requests" in again.output


def test_failures_of_complete_parts_are_said_with_how_to_ask_again(here, monkeypatch):
    engine = ScriptedEngine(label=lambda text, label: 0.4)
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: engine)
    monkeypatch.setattr("ragguard.cli.score.executor_of", lambda *options: ExecutorHere())
    engine.fault = lambda call: ValueError("odd")
    words = ("runs.jsonl", *ON, "--out", "out", "--scorers", "utility")
    says = "failures stand in 3 runs of 1 part; to score a part again, remove its counts"
    for _ in range(2):
        done = score(*words, code=1)
        assert says in done.output
    engine.fault = lambda call: None
    for counts in (here / "out" / "parts").glob("*.json"):
        counts.unlink()
    done = score(*words)
    assert (done.exit_code, says in done.output) == (0, False), done.output


class Broken:
    """An executor that comes to an end of its own."""

    workers = 1

    def __init__(self, error):
        self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def worker(self, job):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (EngineUnreachable("nobody there"), 1, "nobody there; what is complete stays in {out}: run it again"),
        (
            KeyboardInterrupt(),
            130,
            "stopped; the parts that are complete stay in {out}, and the same command continues",
        ),
        (StoreError("the disk is full"), 2, "ragguard score: the disk is full"),
    ],
    ids=["engine", "interrupt", "disk"],
)
def test_a_job_that_ends_early_says_what_to_do(here, monkeypatch, error, code, says):
    monkeypatch.setattr("ragguard.cli.score.executor_of", lambda *options: Broken(error))
    done = score("runs.jsonl", *ON, "--out", "out", code=code)
    (line,) = done.output.strip().splitlines()
    assert says.format(out=here / "out") in line
