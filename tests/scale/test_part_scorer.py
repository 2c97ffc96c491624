"""One part: scored through a pipeline alone, written whole or not at all, tried again within a limit."""

import dataclasses

import pytest
from support.parts import scored_in, scores_in
from support.runs import a_run

from ragguard.errors import EngineUnreachable, WorkerLost
from ragguard.runtime.circuit_breaker import RetrySchedule
from ragguard.scale import PartJob, ScoringSettings
from ragguard.scale.part import find_runs, plan_parts
from ragguard.scale.part_scorer import PartScorer
from ragguard.storage.files.runfile import write_runs


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
    (part,) = plan_parts(find_runs([path]), 10**6)
    return part


async def attempt(job, part):
    job.folder.begin({}, 1, [])
    scorer = PartScorer(job)
    try:
        return await scorer.attempt(part)
    finally:
        await scorer.aclose()


def failures(job):
    return [failure for scored in scored_in(job.folder) for failure in scored.failures]


def left_over(tmp_path):
    return [
        path.name
        for path in (tmp_path / "out").rglob("*")
        if path.is_file() and path.name not in ("settings.json", "plan.json")
    ]


async def test_a_part_is_written_with_scores_runs_and_counts(engine, job, part, tmp_path):
    counts = await attempt(job, part)
    totals = counts.totals
    assert (totals.runs, totals.scores, totals.failures, totals.rejected) == (40, 600, 0, 2)
    assert counts.rejected_lines[0].partition(": line ")[2][:16] == "1, byte 0, JSON:"
    assert [scored.run.id for scored in scored_in(job.folder)] == [f"r{at:02}" for at in range(40)]
    assert len({score.key for score in scores_in(job.folder)}) == 600
    assert [job.folder.counts(key) for key in job.folder.finished()] == [counts]
    assert len(left_over(tmp_path)) == 2


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
    with pytest.raises(EngineUnreachable, match="gone"):
        await attempt(job, part)
    assert job.folder.finished() == []
    assert left_over(tmp_path) == []


async def test_engine_that_this_process_has_loaded_and_that_is_gone_needs_another_process(engine, job, part):
    engine.fault = lambda call: EngineUnreachable("gone")
    job = dataclasses.replace(
        job, scoring=dataclasses.replace(job.scoring, engine="vllm:some"), patience_s=600.0
    )
    with pytest.raises(WorkerLost, match="has an engine that is gone: gone"):
        await attempt(job, part)


async def test_engine_that_answers_again_within_the_patience_costs_no_score(engine, job, part, monkeypatch):
    monkeypatch.setattr("ragguard.scale.part_scorer._PAUSES", RetrySchedule(first=1e-9))
    asked = 0

    def restarting(call):
        nonlocal asked
        asked += 1
        return EngineUnreachable("restarting") if asked < 4 or 100 < asked < 200 else None

    engine.fault = restarting
    counts = await attempt(dataclasses.replace(job, patience_s=600.0), part)
    assert (counts.totals.failures, counts.totals.scores) == (0, 600)


async def test_part_of_which_no_run_is_answered_ends_the_job(engine, job, part):
    engine.fault = lambda call: EngineUnreachable("not these") if "question" in str(call.texts) else None
    with pytest.raises(
        EngineUnreachable, match=r"no run of a part was answered: EngineUnreachable: .*: not these"
    ):
        await attempt(job, part)
