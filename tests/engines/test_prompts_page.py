"""docs/how-to/prompts.md: its prompt set scores runs, and every task, placeholder and field is described."""

import dataclasses
import re
from pathlib import Path

import pytest
from support.runs import a_run
from support.scripted_engine import ScriptedEngine

from ragguard.engines.prompts import TASKS, Template, load_prompts
from ragguard.scorers.evaluation import evaluate
from ragguard.scorers.pipeline import ScoringPipeline

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "prompts.md").read_text("utf-8")
(SET,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ROWS = {cells[1].strip(): cells for line in PAGE.splitlines() if len(cells := line.split("|")) > 4}


async def test_the_smallest_set_on_the_page_scores_utility(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(SET)
    engine = ScriptedEngine(label=lambda text, label: 0.4)
    pipeline = ScoringPipeline(engine, scorers=("utility",), prompts=str(path))
    run = a_run("r")
    scored = await evaluate(run, pipeline.results(run))
    assert not scored.failures
    assert {score.name for score in scored.scores} >= {"p_abstain", "p_relevant", "utility", "udcg"}
    assert {score.prompts for score in scored.scores} == {"ours/1"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_row_with_its_placeholders_and_labels(task):
    template = load_prompts("default").template(task)
    row = ROWS[f"`{task}`"]
    assert set(re.findall(r"\{\w+\}", row[2])) == set(re.findall(r"\{\w+\}", template.system + template.user))
    assert bool(row[3].strip()) == bool(template.labels)


@pytest.mark.parametrize("field", dataclasses.fields(Template), ids=lambda field: field.name)
def test_every_field_has_a_row(field):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{field.name}` |")]
    default = row.split("|")[3]
    if field.default not in ("", (), "\n", dataclasses.MISSING):
        assert str(field.default) in default
