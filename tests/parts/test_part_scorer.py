"""One part: scored through a pipeline alone, written whole or not at all, tried again within a limit."""

import dataclasses
import pickle

import pytest
from support.parts import scored_in, scores_in
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard.errors import EngineUnreachable, InvalidInput, PartUnanswered, StoreError
from ragguard.parts import PartJob, PartScorer, ScoringSettings, find_runs, plan_parts
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scorers.belief import Belief
from ragguard.storage.files.runfile import write_runs

NO_WAIT = RetrySchedule(attempts=3, first=1e-9)


@pytest.fixture
def engine(monkeypatch):
    """Answers instead of nano; `fault` decides which calls fail."""
    scripted = ScriptedEngine(label=lambda text, label: 0.4)
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: scripted)
    return scripted


@pytest.fixture
def job(tmp_path):
    return PartJob(scoring=ScoringSettings(scorers=("utility",)), out=str(tmp_path / "out"), patience_s=0.0)


@pytest.fixture
def part(tmp_path):
    """Forty runs with questions of their own, and two broken lines."""
    path = tmp_path / "runs.jsonl"
    made = [a_run(f"r{at:02}", 1, question=f"question {at:02}?") for at in range(40)]
    for run in made:
        run.steps[0].query = run.question
    write_runs(made, path)
    path.write_text("{\n" + path.read_text() + "[]\n")
    (part,) = plan_parts(find_runs([path]))
    return part


async def attempt(job, part, causes=()):
    job.folder.begin({"settings": {}, "part_bytes": 1})
    scorer = PartScorer(job, waits=NO_WAIT)
    await scorer.start()
    try:
        return await scorer.attempt(part, causes)
    finally:
        await scorer.aclose()


def failures(job):
    return [failure for scored in scored_in(job.folder) for failure in scored.failures]


LOST = ("its process ended by SIGKILL",) * 3
"""Why as many attempts as are allowed ended."""


def left_over(tmp_path):
    return [
        path.name
        for path in (tmp_path / "out").rglob("*")
        if path.is_file() and path.name not in ("settings.json", "plan.json")
    ]


async def test_a_part_is_written_with_scores_runs_and_counts(engine, job, part, tmp_path):
    counts = await attempt(job, part)
    totals = counts.totals
    assert (totals.runs, totals.scores, totals.failures, totals.rejected) == (40, 440, 0, 2)
    assert counts.rejected_lines[0].partition(": line ")[2][:16] == "1, byte 0, JSON:"
    assert [scored.run.id for scored in scored_in(job.folder)] == [f"r{at:02}" for at in range(40)]
    assert len({(score.run_id, score.name, score.position) for score in scores_in(job.folder)}) == 440
    assert [job.folder.counts(key) for key in job.folder.finished()] == [counts]
    assert len(left_over(tmp_path)) == 2


async def test_a_run_that_fails_is_a_failure_and_the_others_are_scored(engine, job, part):
    engine.fault = lambda call: ValueError("odd") if "question 07?" in str(call.texts) else None
    counts = await attempt(job, part)
    assert (counts.totals.runs, counts.totals.failed_runs) == (40, 1)
    assert {failure.run_id for failure in failures(job)} == {"r07"}


async def test_runs_that_were_not_answered_are_asked_again(engine, job, part):
    seen = set()

    def once(call):
        fresh = set(call.texts) - seen
        seen.update(fresh)
        return (
            EngineUnreachable("restarting")
            if any(f"question {at}" in str(fresh) for at in range(20, 30))
            else None
        )

    engine.fault = once
    counts = await attempt(job, part)
    assert (counts.totals.failures, counts.totals.scores) == (0, 440)


async def test_runs_are_asked_again_when_the_engine_is_back_at_the_last_moment(engine, job, part):
    """It is gone in all passes, and back when it is asked whether it is gone."""
    back = False

    def restarting(call):
        nonlocal back
        back = back or "question" not in str(call.texts)
        gone = not back and any(f"question {at}" in str(call.texts) for at in range(30, 40))
        return EngineUnreachable("restarting") if gone else None

    engine.fault = restarting
    counts = await attempt(job, part)
    assert back
    assert (counts.totals.failures, counts.totals.scores) == (0, 440)


async def test_prompt_that_is_never_answered_is_a_failure_with_its_cause(engine, job, part):
    engine.fault = lambda call: EngineUnreachable("not this") if "question 07?" in str(call.texts) else None
    counts = await attempt(job, part)
    assert counts.totals.failed_runs == 1
    assert "not this" in str(counts.totals.reasons)


@pytest.mark.parametrize("answered", [0, 5, 38])
async def test_a_part_whose_engine_is_gone_is_not_written(engine, job, part, tmp_path, answered):
    """At once, after some runs, and so late that fewer runs are left than are waited for."""
    texts = [f"question {at:02}?" for at in range(answered)]
    job = dataclasses.replace(job, concurrency=1)

    def gone(call):
        return None if any(text in str(call.texts) for text in texts) else EngineUnreachable("gone")

    engine.fault = gone
    with pytest.raises(PartUnanswered, match="gone"):
        await attempt(job, part)
    assert job.folder.finished() == []
    assert left_over(tmp_path) == []


async def test_a_part_that_was_begun_too_often_is_failures_with_their_cause(engine, job, part, tmp_path):
    """Where the engine answers other questions: it is up to the part."""
    engine.fault = lambda call: EngineUnreachable("gone") if "question" in str(call.texts) else None
    counts = await attempt(job, part, LOST)
    totals = counts.totals
    assert (totals.runs, totals.failed_runs, totals.failures, totals.scores) == (40, 40, 40, 0)
    assert {failure.error for failure in failures(job)} == {"PartLost"}
    (message,) = {failure.message for failure in failures(job)}
    assert (
        message == "its part was begun 3 times without a result; the last time: its process ended by SIGKILL"
    )


async def test_a_complete_part_that_is_begun_too_often_keeps_its_result(engine, job, part, tmp_path):
    engine.fault = lambda call: ValueError("odd") if "question 07?" in str(call.texts) else None
    first = await attempt(job, part)
    engine.fault = lambda call: EngineUnreachable("gone") if "question" in str(call.texts) else None
    assert await attempt(job, part, LOST) == first
    assert (first.totals.runs, first.totals.failed_runs) == (40, 1)
    assert {failure.run_id for failure in failures(job)} == {"r07"}


async def test_a_part_is_not_given_up_while_its_engine_answers_nothing(engine, job, part, tmp_path):
    engine.fault = lambda call: EngineUnreachable("gone")
    with pytest.raises(EngineUnreachable, match="answers nothing, after 3 attempts at a part: gone"):
        await attempt(job, part, LOST)
    assert job.folder.finished() == []
    engine.fault = lambda call: None
    assert (await attempt(job, part)).totals.scores == 440


async def test_a_full_disk_is_one_sentence_and_no_part(engine, job, part, monkeypatch):
    def full(contents, replaced=None):
        raise OSError(28, "No space left on device")

    job.folder.begin({"settings": {}, "part_bytes": 1})
    scorer = PartScorer(job)
    await scorer.start()
    monkeypatch.setattr("ragguard.storage.files.partfolder._write", full)
    with pytest.raises(
        StoreError, match=r"could not be written .*No space left.* free the disk and run the same"
    ):
        await scorer.attempt(part)
    assert job.folder.finished() == []


@pytest.mark.parametrize("patience", [0.0, 600.0])
async def test_an_engine_that_nobody_can_reach_is_waited_for_and_then_told(
    engine, job, monkeypatch, patience
):
    monkeypatch.setattr("ragguard.parts.part_scorer._BEFORE_START", NO_WAIT)
    asked, known = 0, engine.info

    async def info():
        nonlocal asked
        asked += 1
        if asked < 4:
            raise EngineUnreachable("nobody there")
        return await known()

    engine.info = info
    scorer = PartScorer(dataclasses.replace(job, patience_s=patience))
    if patience:
        await scorer.start()
        assert asked >= 4
    else:
        with pytest.raises(EngineUnreachable, match="nobody there"):
            await scorer.start()
        assert asked == 1


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


def test_keys_and_passwords_are_not_in_the_record(tmp_path):
    job = PartJob(scoring=ScoringSettings(engine="http://me:geheim123@localhost:1/v1"), out=str(tmp_path))
    assert "geheim123" not in str(job.record)
    assert job.record["engine"] == "http://localhost:1/v1"

    def record(**args):
        scoring = ScoringSettings(engine="vllm:m", engine_args={"max_model_len": 8, "dtype": "half", **args})
        return PartJob(scoring=scoring, out=str(tmp_path)).record["engine_args"]

    found = record(hf_token="geheim123", speculative_config={"api_key": "geheim123"})
    assert "geheim123" not in str(found)
    assert (found["max_model_len"], found["dtype"]) == (8, "half")
    assert found != record(hf_token="another", speculative_config={"api_key": "geheim123"})


def test_job_that_cannot_be_sent_to_a_process_is_refused(engine, tmp_path):
    with pytest.raises(InvalidInput, match="so that every process connects by itself"):
        PartJob(scoring=ScoringSettings(engine=engine), out=str(tmp_path))
    with pytest.raises(InvalidInput, match="each process would spend one of its own; a dry run tells"):
        PartJob(scoring=ScoringSettings(budget={"tokens": 5}), out=str(tmp_path))
