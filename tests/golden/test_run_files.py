"""What stands in run files and score files of fixed runs, and what the command writes of a store."""

from __future__ import annotations

from support.fixed_runs import fixed_runs
from support.golden import compare_text

from ragguard.storage.files.runfile import write_runs, write_scores
from ragguard.telemetry.sink import JsonlSink


def test_a_run_file(tmp_path):
    write_runs((scored.run for scored in fixed_runs()), tmp_path / "runs.jsonl")
    compare_text("run-file.jsonl", (tmp_path / "runs.jsonl").read_text())


async def test_a_score_file(tmp_path):
    write_scores(fixed_runs(), tmp_path / "scores.jsonl")
    compare_text("score-file.jsonl", (tmp_path / "scores.jsonl").read_text())
    sink = JsonlSink(tmp_path / "sink.jsonl")
    for scored in fixed_runs():
        await sink.submit(scored)
    assert (tmp_path / "sink.jsonl").read_text() == (tmp_path / "scores.jsonl").read_text()
