"""Guard and report of one run say the same of the same passage, in both forms of relevance."""

from __future__ import annotations

import re

import pytest
from support.commands import ragguard

from ragguard import DistractorGuard, RagGuard, connect
from ragguard.engines.prompts import load_prompts
from ragguard.storage.sqlite.reader import StoreReader
from studies.hard_world import hard_cases
from studies.label_noise import LabelNoise

PASSAGES = 10
_ROW = re.compile(r"^ *(\d+) .* (misleads|helps|does little) *$", re.MULTILINE)


def unsure_judge():
    """A judge with so much noise that it calls many a passage relevant with a probability near a half."""
    return LabelNoise(connect("nano"), {load_prompts("nano").labels("relevance"): 6.0}, seed=3)


@pytest.mark.parametrize("relevance", ["probability", "binary"])
async def test_the_report_calls_misleading_what_the_guard_would_drop(tmp_path, relevance):
    store, expected = tmp_path / "runs.db", {}
    rg = RagGuard("nano", judge=unsure_judge(), store=store, scorers=["utility"], relevance=relevance)
    guard = DistractorGuard(
        rg.engine, budget_ms=60_000, min_keep=0, shadow=True, judge=unsure_judge(), relevance=relevance
    )
    async with rg:
        for case in hard_cases(6, seed=5):
            passages = case.pool()[:PASSAGES]
            async with rg.run(case.question) as run:
                run.retrieved(case.question, passages)
                decision = await guard.aprune(case.question, passages)
                judged = await guard.judged(case.question, passages)
                run.answered("nobody")
            expected[run.id] = (
                [one.utility for one in judged],
                {drop.position for drop in decision.would_drop},
            )
    assert any(dropped for _, dropped in expected.values()), "there must be something to drop"
    reader = StoreReader(store)
    for run_id, (utilities, dropped) in expected.items():
        scores = {s.position: s.value for s in reader.scores(run_id) if s.name == "utility"}
        assert [scores[place] for place in range(1, PASSAGES + 1)] == pytest.approx(
            utilities, abs=1e-5
        )  # by batch
        report = ragguard("report", store, "--run", run_id, env={"COLUMNS": "140"})
        verdicts = {int(place): verdict for place, verdict in _ROW.findall(report.output)}
        assert len(verdicts) == PASSAGES, report.output
        assert {place for place, verdict in verdicts.items() if verdict == "misleads"} == dropped
