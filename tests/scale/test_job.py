"""A whole job: checked before anything is written, finished parts skipped, ids that stand twice found."""

import dataclasses
import pickle
import threading

import pytest
from support.parts import ExecutorHere, scored_in
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard.errors import EngineError, EngineUnreachable, InvalidInput, StoreError, WorkerLost
from ragguard.metrics import ENGLISH, Language
from ragguard.scale import PartJob, ScoringSettings, carry_out, prepare
from ragguard.scorers.belief import Belief
from ragguard.storage.files.runfile import write_runs


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
    assert report.before.parts == 3
    assert report.before.runs + report.now.runs == 40
    assert report.whole
    assert run_ids(job) == sorted(f"r{at}" for at in range(40))
    asked, executor = len(engine.calls), ExecutorHere()
    again = score([runs], job, executor)
    assert (len(engine.calls), executor.started) == (asked, 0)
    assert (again.before.runs, again.now.runs) == (40, 0)


def test_failures_are_asked_again_once_the_counts_of_their_part_are_removed(engine, job, tmp_path):
    runs = tmp_path / "runs.jsonl"
    write_runs([asking(at) for at in range(40)], runs)
    odd = ("question 03?", "question 30?")
    engine.fault = lambda call: ValueError("odd") if any(one in str(call.texts) for one in odd) else None
    report = score([runs], job, size=4000)
    assert report.now.failed_runs == 2
    engine.fault = lambda call: None
    asked, executor = len(engine.calls), ExecutorHere()
    report = score([runs], job, executor)
    assert (len(engine.calls), executor.started, report.before.failed_runs) == (asked, 0, 2)

    failed = [key for key in job.folder.finished() if job.folder.counts(key).totals.failures]
    (job.folder.path / "parts" / f"{failed[0]}.json").unlink()
    report = score([runs], job)
    assert (report.now.parts, report.now.failures, report.before.failed_runs) == (1, 0, 1)
    assert run_ids(job) == sorted(f"r{at:02}" for at in range(40))


def test_more_files_are_added_and_changed_ones_are_refused(engine, job, runs, tmp_path):
    score([runs], job)
    write_runs([a_run("new")], tmp_path / "more.jsonl")
    assert score([runs, tmp_path / "more.jsonl"], job).now.runs == 1
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
    prepare([runs], dataclasses.replace(job, concurrency=2, patience_s=9))  # these decide about no score


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
        (lambda out: (out.mkdir(), (out / "settings.json").write_text("{}")), "settings.json is damaged"),
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
    report = carry_out(prepared, ExecutorHere(), lambda counts: seen.extend(counts.rejected_lines))
    assert (report.now.runs, report.now.rejected, report.whole) == (2, 1, False)
    assert "id: got 'r5'; allowed: an id of its own" in seen[0]
    assert run_ids(job) == ["once", "r5"]


def test_input_that_was_moved_is_not_asked_again(engine, job, runs, tmp_path):
    score([runs], job, size=4000)
    asked = len(engine.calls)
    runs.rename(tmp_path / "moved.jsonl")
    report = score([tmp_path / "moved.jsonl"], job)
    assert (len(engine.calls), report.now.runs, report.before.runs) == (asked, 0, 40)
    assert report.whole


def test_equal_files_are_scored_once(engine, job, runs, tmp_path):
    (tmp_path / "copy.jsonl").write_bytes(runs.read_bytes())
    report = score([runs, tmp_path / "copy.jsonl"], job)
    assert (report.now.runs, report.whole) == (40, True)


def test_damaged_part_is_an_error_that_says_to_remove_it(engine, job, runs, tmp_path):
    score([runs], job, size=4000)
    key, *_ = job.folder.finished()
    asked, store = len(engine.calls), tmp_path / "out" / "parts" / f"{key}.db"
    for content in (
        store.read_bytes()[:-20_000],
        b"",
    ):  # a job whose parts are all complete ended well beside these
        store.write_bytes(content)
        with pytest.raises(StoreError, match=f"{key}.db is damaged; remove {key}.json there, and the same"):
            score([runs], job)
    for content in (b"", b"[" * 100_000):
        (tmp_path / "out" / "parts" / f"{key}.json").write_bytes(content)
        with pytest.raises(StoreError, match=f"{key}.json is damaged .*remove it, and the same"):
            score([runs], job)
    assert len(engine.calls) == asked
    (tmp_path / "out" / "parts" / f"{key}.json").unlink()
    report = score([runs], job)
    assert (report.now.parts, report.whole) == (1, True)
    assert run_ids(job) == sorted(f"r{at}" for at in range(40))


def test_second_driver_on_a_folder_is_refused_with_the_way_out(engine, job, runs, tmp_path):
    prepared = prepare([runs], job)
    with job.folder.locked():
        with pytest.raises(StoreError, match=r"another process scores into .* wait for it"):
            carry_out(prepared, ExecutorHere())
        assert job.folder.settings() is None
    assert carry_out(prepared, ExecutorHere()).now.runs == 40


class Losing(ExecutorHere):
    """An executor whose workers are lost with the parts that begin at some bytes."""

    def __init__(self, losing):
        super().__init__()
        self.losing = losing

    def worker(self, job):
        score = super().worker(job)

        def lost(part):
            if self.losing(part):
                raise WorkerLost("ended with exit code 9")
            return score(part)

        return lost


class OneMachine(ExecutorHere):
    """An executor that wants four workers and has a machine for one: the others wait until the job ends."""

    workers, ended = 4, threading.Event()

    def __exit__(self, *_):
        self.ended.set()

    def worker(self, job):
        if self.started:
            self.ended.wait()
        return super().worker(job)


def test_no_part_waits_for_a_machine_while_a_worker_is_free(engine, job, runs):
    assert score([runs], job, OneMachine(), size=4000).whole


def test_part_with_which_every_worker_is_lost_is_left_out_and_named(engine, job, runs):
    executor = Losing(lambda part: 0 < part.start < 5000)
    report = carry_out(prepare([runs], job, size=4000), executor)
    assert (report.whole, executor.started) == (False, 4)
    (left,) = prepare([runs], job).left
    assert report.lost == [f"{left}: 3 processes were lost with it, the last one ended with exit code 9"]
    assert score([runs], job).whole
    assert run_ids(job) == sorted(f"r{at}" for at in range(40))


def test_workers_that_are_all_lost_end_the_job(engine, job, runs):
    executor = Losing(lambda part: True)
    with pytest.raises(EngineError, match="3 processes were lost with it, the last one ended with"):
        carry_out(prepare([runs], job, size=4000), executor)
    assert executor.started == 3


def test_settings_travel_with_the_content_of_prompt_files(tmp_path):
    def digest(**changes):
        return PartJob(scoring=ScoringSettings(**changes), out=str(tmp_path)).digest

    prompts = tmp_path / "mine.toml"
    prompts.write_text(
        'name = "mine"\nversion = "1"\n[abstention]\nuser = "{passages} {query}"\nlabels = ["no"]\n'
    )
    before = digest(prompts=prompts)
    job = PartJob(scoring=ScoringSettings(prompts=prompts), out=str(tmp_path))
    prompts.write_text(prompts.read_text().replace("{passages} {query}", "{query} {passages}"))
    assert pickle.loads(pickle.dumps(job)).digest == job.digest == before != digest(prompts=prompts)
    scorers = (("utility",), (Belief(),), (Belief(samples=4),))
    digests = {digest(), digest(engine="http://localhost:1/v1"), *(digest(scorers=one) for one in scorers)}
    assert len(digests) == 5
    assert (
        digest()
        == digest(language=ENGLISH)
        != digest(language=Language())
        != digest(language=Language(articles=("der",)))
    )


def test_keys_and_passwords_are_not_in_the_record(tmp_path):
    scoring = ScoringSettings(
        engine="http://me:geheim123@localhost:1/v1", engine_args={"hf_token": "geheim123"}
    )
    job = PartJob(scoring=scoring, out=str(tmp_path))
    assert "geheim123" not in str(job.record)
    assert job.record["engine"] == "http://localhost:1/v1"


def test_job_that_cannot_be_sent_to_a_process_is_refused(engine, tmp_path):
    with pytest.raises(InvalidInput, match="so that every process connects by itself"):
        PartJob(scoring=ScoringSettings(engine=engine), out=str(tmp_path))
    with pytest.raises(InvalidInput, match="each process would spend one of its own"):
        PartJob(scoring=ScoringSettings(budget={"tokens": 5}), out=str(tmp_path))
