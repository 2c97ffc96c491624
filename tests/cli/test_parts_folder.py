"""`ragguard report`, `compare`, `validate` and the gate on a folder of scored parts: the numbers of a store."""

import json
import re

import pytest
from support.commands import ragguard
from support.parts import write_parts
from support.runs import a_run
from support.stored import scored_store

from ragguard import world
from ragguard.pytest_gate import ragguard_gate as ragguard_gate
from ragguard.records import Failure, Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_runs, write_scores


def call(*words, code=0):
    return ragguard(*words, env={"COLUMNS": "200"}, catch_exceptions=False, code=code).output


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two sets of runs of the world, each scored by nano into a store and into a folder."""
    here = tmp_path_factory.mktemp("both")
    cases = list(world.cases(4, seed=5))
    for name, junk in (("before", 3), ("after", 1)):
        runs = [world.make_run(case, seed=at, junk=junk) for at, case in enumerate(cases)]
        for at, run in enumerate(runs):
            run.id, run.started_ns, run.ended_ns = f"{name}-{at}", 10**18 + at, 10**18 + at + 10**6
            for step in run.steps:
                step.run_id, step.id = run.id, f"{run.id}-{step.index}"
        file = here / f"{name}.jsonl"
        write_runs(runs, file)
        options = ("--engine", "nano", "--concurrency", "1")
        call("score", file, "--store", here / f"{name}.db", *options)
        call("score", file, "--on", "processes:1", "--out", here / name, *options)
    return here


def test_list_of_a_folder_is_that_of_its_store(both):
    assert call("report", both / "before") == call("report", both / "before.db")
    assert call("report", both / "before", "-n", "2") == call("report", both / "before.db", "-n", "2")


def test_the_page_is_the_same_but_for_the_numbers_of_steps(both, tmp_path):
    def page(*words):
        call("report", *words, "--html", tmp_path / "page.html")
        found = re.findall(
            r'<script type="application/json" id="(\S+)">(.*)</script>', (tmp_path / "page.html").read_text()
        )
        data = {id: json.loads(text) for id, text in found}
        for run, (of_passages, of_steps, _) in zip(
            data["block-0"]["runs"], data["block-0"]["said"], strict=True
        ):
            numbers = {step["place"]: at for at, step in enumerate(run["steps"])}
            for row in (*of_passages, *of_steps):
                row[0] = numbers[row[0]]
            for step in run["steps"]:
                step["place"] = numbers[step["place"]]
            run["cost"]["seconds"] = None
        return data

    assert page(both / "before") == page(both / "before.db")


@pytest.mark.parametrize("sides", [("before", "after"), ("before.db", "after"), ("before", "after.db")])
def test_comparison_of_folders_is_that_of_their_stores(both, sides):
    a, b = (both / side for side in sides)
    mine = json.loads(call("compare", a, b, "--json"))
    theirs = json.loads(call("compare", both / "before.db", both / "after.db", "--json"))
    assert {change["metric"] for change in mine["changes"]} >= {"delta_seper", "coverage"}
    assert "udcg" in mine["refused"], "one side has another K"
    assert near(mine) == near(theirs)


def near(value):
    """Returns a value of JSON with its numbers rounded to ten digits: means are summed in other orders."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def test_a_folder_validates_as_its_store_does(tmp_path):
    def scored(number):
        step = RetrievalStep(f"s{number}", f"r{number}", passages=[Passage("text", grade=1 + number % 5)])
        run = Run(f"r{number}", f"Who is number {number % 8}?", ["nobody"], "nobody", [step], ended_ns=1)
        scores = [
            Score("udcg_context", number / 7 % 1, "run", run.id),
            Score("answer_correct", float(number % 3), "run", run.id),
        ]
        return ScoredRun(run, scores)

    runs = [scored(number) for number in range(40)]
    write_parts(tmp_path / "scores", runs, size=9)
    store = scored_store(tmp_path / "s.db", runs)

    def tables(*words):
        call("validate", *words, "--json", tmp_path / "tables.json")
        return json.loads((tmp_path / "tables.json").read_text())

    assert tables(tmp_path / "scores") == tables(store)
    (tmp_path / "scores" / "parts" / "0001.json").unlink()
    notes = tables(tmp_path / "scores")[0]["notes"]
    assert any("1 of 5 parts are missing" in note for note in notes)


@pytest.fixture
def unfinished(tmp_path):
    """A folder without one of its three parts, with a failure in another one."""
    runs = [
        ScoredRun(
            a_run(f"r{number}", question=f"who is {number}?"),
            [Score("udcg", 0.5 + number / 100, "step", f"r{number}", f"r{number}-s0")],
        )
        for number in range(6)
    ]
    runs[0].failures = [Failure("belief", "EngineTimeout", "too late", True, "r0")]
    write_parts(tmp_path / "scores", runs)
    (tmp_path / "scores" / "parts" / "0001.json").unlink()
    write_scores(runs, tmp_path / "scores.jsonl")
    return tmp_path


def test_an_unfinished_folder_is_told_in_every_output(unfinished):
    missing, failed = "1 of 3 parts are missing", "1 score failed, in 1 of 4 runs"
    folder, file = unfinished / "scores", unfinished / "scores.jsonl"
    outputs = [
        call("report", folder),
        call("report", folder, "--run", "r0"),
        call("report", folder, "--html", unfinished / "page.html"),
        (unfinished / "page.html").read_text(),
        call("compare", folder, file),
        call("compare", file, folder, "--json"),
    ]
    for output in outputs:
        said = " ".join(output.split())
        assert missing in said
        assert failed in said


def test_gate_on_an_unfinished_folder_warns(unfinished, ragguard_gate):
    with pytest.warns(UserWarning, match="1 of 3 parts are missing"):
        found = ragguard_gate(unfinished / "scores", unfinished / "scores.jsonl", fail_if="udcg < -0.5")
    assert found.paired == 4
    with pytest.raises(pytest.fail.Exception, match="1 of 3 parts are missing"):
        ragguard_gate(str(unfinished / "scores"), unfinished / "scores.jsonl", fail_if="udcg >= 0")
