"""A whole job: checked before anything is written, finished parts skipped, ids that stand twice found."""

import dataclasses
import json
import os

import pytest
from support.parts import ExecutorHere, scored_in
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard.errors import EngineError, EngineUnreachable, InvalidInput, StoreError
from ragguard.parts import PartJob, ScoringSettings, carry_out, prepare
from ragguard.storage.files.runfile import write_runs
from ragguard.storage.sqlite.owners import this_process


@pytest.fixture
def engine(monkeypatch):
    scripted = ScriptedEngine(label=lambda text, label: 0.4)
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: scripted)
    return scripted


@pytest.fixture
def job(tmp_path):
    return PartJob(scoring=ScoringSettings(scorers=("utility",)), out=str(tmp_path / "out"))


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.jsonl"
    write_runs([a_run(f"r{at}") for at in range(40)], path)
    return path


def asking(at):
    """A run with a question of its own."""
    run = a_run(f"r{at:02}", 1, question=f"question {at:02}?")
    run.steps[0].query = run.question
    return run


def score(inputs, job, executor=None, **more):
    return carry_out(prepare(inputs, job, **more), executor or ExecutorHere())


def run_ids(job):
    return sorted(scored.run.id for scored in scored_in(job.folder))


def test_a_stopped_job_goes_on_and_a_finished_one_asks_nothing_and_starts_nothing(engine, job, runs):
    with pytest.raises(KeyboardInterrupt):
        score([runs], job, ExecutorHere(stop_after=3), size=4000)
    assert len(job.folder.finished()) == 3
    report = score([runs], job)  # with the parts that the folder was begun with
    assert report.progress.before.parts == 3
    assert report.progress.before.runs + report.totals.runs == 40
    assert report.whole
    assert run_ids(job) == sorted(f"r{at}" for at in range(40))
    asked, executor = len(engine.calls), ExecutorHere()
    again = score([runs], job, executor)
    assert (len(engine.calls), executor.started) == (asked, 0)
    assert (again.progress.before.runs, again.totals.runs) == (40, 0)


def test_failures_are_asked_again_when_it_is_said_and_only_their_parts(engine, job, tmp_path):
    runs = tmp_path / "runs.jsonl"
    write_runs([asking(at) for at in range(40)], runs)
    odd = ("question 03?", "question 30?")
    engine.fault = lambda call: ValueError("odd") if any(one in str(call.texts) for one in odd) else None
    report = score([runs], job, size=4000)
    assert (report.totals.failed_runs, report.totals.parts_with_failures) == (2, 2)
    engine.fault = lambda call: None
    asked, executor = len(engine.calls), ExecutorHere()
    report = score([runs], job, executor)
    assert (len(engine.calls), executor.started, report.progress.before.failed_runs) == (asked, 0, 2)

    with pytest.raises(KeyboardInterrupt):
        score([runs], job, ExecutorHere(stop_after=1), retry_failures=True)
    assert len(prepare([runs], job, retry_failures=True).left) == 1  # the other one keeps what it has
    assert len(run_ids(job)) == 40
    report = score([runs], job, retry_failures=True)
    assert (report.totals.parts, report.totals.failures, report.progress.before.failures) == (1, 0, 0)
    assert report.progress.before.runs + report.totals.runs == 40
    assert run_ids(job) == sorted(f"r{at:02}" for at in range(40))
    assert prepare([runs], job, retry_failures=True).left == []


def test_another_model_does_not_mend_failures(engine, job, runs, monkeypatch):
    engine.fault = lambda call: ValueError("odd")
    score([runs], job)
    other = ScriptedEngine(label=lambda text, label: 0.4, model="another")
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: other)
    with pytest.raises(EngineError, match="was scored by another model"):
        prepare([runs], job, retry_failures=True)


def test_more_files_are_added_and_changed_ones_are_refused(engine, job, runs, tmp_path):
    score([runs], job)
    write_runs([a_run("new")], tmp_path / "more.jsonl")
    assert score([runs, tmp_path / "more.jsonl"], job).totals.runs == 1
    assert len(run_ids(job)) == 41
    write_runs([a_run("other")], runs)
    with pytest.raises(
        StoreError, match=r"holds scores of .*runs.jsonl as they were before they were changed"
    ):
        prepare([runs], job)


def test_other_settings_are_refused_with_their_names(engine, job, runs):
    score([runs], job)
    other = dataclasses.replace(job, scoring=ScoringSettings(scorers=("belief",)))
    with pytest.raises(StoreError, match=r"other settings \(scorers was \['utility'\], is \['belief'\]\)"):
        prepare([runs], other)
    with pytest.raises(InvalidInput, match="or another folder"):
        prepare([runs], job, size=12345)
    prepare([runs], dataclasses.replace(job, concurrency=2, attempts=9))  # these decide about no score


def test_another_model_at_the_same_address_is_refused(engine, job, runs, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        score([runs], job, ExecutorHere(stop_after=1), size=4000)
    other = ScriptedEngine(label=lambda text, label: 0.4, model="another")
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: other)
    with pytest.raises(EngineError, match="was scored by another model"):
        prepare([runs], job)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda out: out.write_text("x"), "is a file; name a folder"),
        (lambda out: (out.mkdir(), (out / "mine.txt").touch()), "holds other files, such as 'mine.txt'"),
        (lambda out: (out.mkdir(), (out / "settings.json").write_text("{}")), "no readable settings.json"),
        (lambda out: (out.mkdir(), (out / "settings.json").write_text('{"format": "ragguard.parts/9"}')),
         "was written in the format 'ragguard.parts/9'"),
    ],
)  # fmt: skip
def test_a_folder_that_is_something_else_is_refused(engine, job, runs, tmp_path, make, says):
    make(tmp_path / "out")
    with pytest.raises(StoreError, match=says):
        prepare([runs], job)


def test_nothing_is_written_before_everything_is_known_to_be_right(engine, job, runs, tmp_path):
    async def nobody():
        raise EngineUnreachable("nobody there")

    engine.info = nobody
    with pytest.raises(EngineUnreachable):
        prepare([runs], job)
    with pytest.raises(StoreError, match="does not exist"):
        prepare([runs, tmp_path / "missing.jsonl"], job)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(StoreError, match="there are no runs"):
        prepare([tmp_path / "empty.jsonl"], job)
    with pytest.raises(InvalidInput, match="a folder outside of the input"):
        prepare([tmp_path], job)
    assert not (tmp_path / "out").exists()


def test_run_id_that_stands_twice_in_a_part_is_rejected_the_second_time(engine, job, tmp_path):
    write_runs([a_run("r5"), a_run("once"), a_run("r5", question="another?")], tmp_path / "runs.jsonl")
    seen = []
    prepared = prepare([tmp_path / "runs.jsonl"], job)
    report = carry_out(prepared, ExecutorHere(), lambda counts, progress: seen.extend(counts.rejected_lines))
    assert (report.totals.runs, report.totals.rejected, report.whole) == (2, 1, False)
    assert "id: got 'r5'; allowed: an id of its own" in seen[0]
    assert run_ids(job) == ["once", "r5"]


def test_input_that_was_moved_is_not_asked_again(engine, job, runs, tmp_path):
    score([runs], job, size=4000)
    asked = len(engine.calls)
    runs.rename(tmp_path / "moved.jsonl")
    report = score([tmp_path / "moved.jsonl"], job)
    assert (len(engine.calls), report.totals.runs, report.progress.before.runs) == (asked, 0, 40)
    assert report.whole


def test_equal_files_are_scored_once(engine, job, runs, tmp_path):
    (tmp_path / "copy.jsonl").write_bytes(runs.read_bytes())
    report = score([runs, tmp_path / "copy.jsonl"], job)
    assert (report.totals.runs, report.whole) == (40, True)


def test_damaged_part_is_an_error_that_says_to_remove_it(engine, job, runs, tmp_path):
    """Before anything is asked; `tests/storage/test_partfolder.py` has the kinds of damage."""
    score([runs], job, size=4000)
    key, *_ = job.folder.finished()
    (tmp_path / "out" / "parts" / f"{key}.json").write_bytes(b"")
    asked = len(engine.calls)
    with pytest.raises(StoreError, match=f"{key}.json is damaged .*remove parts/{key}.json there"):
        score([runs], job)
    assert len(engine.calls) == asked
    (tmp_path / "out" / "parts" / f"{key}.json").unlink()
    report = score([runs], job)
    assert (report.totals.parts, report.whole) == (1, True)
    assert run_ids(job) == sorted(f"r{at}" for at in range(40))


def test_second_driver_on_a_folder_is_refused_with_the_way_out(engine, job, runs, tmp_path):
    prepared = prepare([runs], job)
    lock = tmp_path / "out" / "driver.lock"
    with job.folder.locked():
        with pytest.raises(
            StoreError, match=rf"the process {os.getpid()} on .* scores into .* remove {lock} and run"
        ):
            carry_out(prepared, ExecutorHere())
        assert job.folder.settings() is None
    assert not lock.exists()
    assert carry_out(prepared, ExecutorHere()).totals.runs == 40


@pytest.mark.parametrize("content", [None, "", "[]"], ids=["of a dead process", "empty", "something else"])
def test_lock_of_a_process_that_has_ended_is_taken_over(engine, job, runs, tmp_path, content):
    lock = tmp_path / "out" / "driver.lock"
    lock.parent.mkdir()
    if content is None:
        own = this_process("")
        lock.write_text(
            json.dumps({"host": "here", "machine": own.machine, "pid": own.pid, "born": "long ago"})
        )
        assert score([runs], job).totals.runs == 40
    else:
        lock.write_text(content)
        with pytest.raises(StoreError, match="another process scores into"):
            score([runs], job)


def test_leftovers_of_interrupted_attempts_are_removed_at_the_end(engine, job, runs, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        score([runs], job, ExecutorHere(stop_after=3), size=4000)
    (key, *_), out = job.folder.finished(), tmp_path / "out"
    left = out / "parts" / f".{key}.db.abc"
    left.touch()
    score([runs], job)
    assert not left.exists()


def test_executor_that_cannot_connect_raises_before_anything_is_written(runs, job):
    class Nowhere(ExecutorHere):
        def connect(self):
            raise InvalidInput("address", "nowhere", "somewhere")

    with pytest.raises(InvalidInput, match="nowhere"):
        score([runs], job, Nowhere())
    assert job.folder.settings() is None
