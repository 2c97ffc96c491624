"""What cannot be shown or compared: each is one sentence that says the way out, and exit code 2."""

import shutil

import pytest
from support.commands import ragguard, refusal
from support.compared import scored, side
from support.stored import closed_after, scored_store

from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_runs


def with_coverage(number):
    item = scored(number, 0.5)
    item.scores = [
        *item.scores,
        Score("coverage", 0.5, "step", item.run.id, item.run.steps[0].id, scorer="coverage"),
    ]
    return item


@pytest.fixture
def stores(tmp_path):
    """A good store, and all the bad ones."""
    good = scored_store(tmp_path / "good.db", side(0))
    scored_store(tmp_path / "empty.db", [])
    scored_store(tmp_path / "unscored.db", [ScoredRun(Run("x", "Who is number 1?", ended_ns=1), [])])
    scored_store(
        tmp_path / "strangers.db",
        [ScoredRun(Run("x", "Quite another?", ended_ns=1), [Score("udcg", 0.5, "run", "x")])],
    )
    scored_store(tmp_path / "more.db", [with_coverage(number) for number in range(40)])
    (tmp_path / "zero.db").touch()
    write_runs([Run("x", "Who is number 1?")], tmp_path / "runs.jsonl")
    shutil.copy(good, tmp_path / "newer.db")
    for name, statement in (("newer", "PRAGMA user_version = 99"), ("foreign", "CREATE TABLE theirs (x)")):
        with closed_after(tmp_path / f"{name}.db") as db:
            db.execute(statement)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("empty.db", "ragguard score RUNS.jsonl"),
        ("zero.db", "capture some runs into it, or name another"),
        ("newer.db", "Read it with that version, or name another file"),
        ("foreign.db", "another program; name another file"),
        ("missing.db", "check the path"),
        ("runs.jsonl", "name another file"),
    ],
)
def test_a_report_of_what_is_no_scored_store(stores, name, way_out):
    line = refusal("report", stores / name)
    assert line.startswith("ragguard report: ")
    assert way_out in line


@pytest.mark.parametrize(("options", "way_out"), [
    (["--csv", "x", "--rows", "words"], "rows: got 'words'; allowed: 'questions'"),
    (["--run", "nonsense"], "--run: got 'nonsense'"),
    (["--run", "r1", "--most", "3"], "nothing beside --"),
    (["--most", "3", "--html", "x"], "nothing beside --html"),
    *((["--run", "r1", wide, "x"], f"nothing beside {wide}") for wide in ("--html", "--csv")),
    *((["--json", wide, "x"], f"nothing beside {wide}") for wide in ("--html", "--csv")),
    (["--labels", "good.db", "--html", "x"], "nothing beside --html"),
    (["--labels", "good.db", "--run", "r1"], "nothing beside --run"),
    (["--figures", "x", "--html", "x"], "nothing beside --figures"),
    *((["--follow", *others], f"nothing beside {others[0]}")
      for others in (["--run", "x"], ["--html", "x"], ["--json"], ["--labels", "x"])),
])  # fmt: skip
def test_options_of_a_report_that_cannot_go_together(stores, monkeypatch, options, way_out):
    monkeypatch.chdir(stores)
    assert way_out in refusal("report", "good.db", *options)
    assert not (stores / "x").exists()


def test_a_page_of_an_empty_store_is_refused_and_not_written(stores):
    assert "ragguard score" in refusal("report", stores / "empty.db", "--html", stores / "x")
    assert not (stores / "x").exists()


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("empty.db", "the two sides: got '40 and 0 questions'; allowed: scored runs (`ragguard score"),
        ("zero.db", "40 and 0 questions"),
        ("newer.db", "Read it with that version, or name another file"),
        ("foreign.db", "another program; name another file"),
        ("missing.db", "check the path"),
        ("runs.jsonl", "is a run file; score it first: `ragguard score"),
        ("strangers.db", "at least one question in common"),
        (
            "unscored.db",
            "udcg and no scores'; allowed: at least one metric in common; score both with the same scorers",
        ),
    ],
)
def test_a_comparison_with_what_cannot_be_compared(stores, name, way_out):
    line = refusal("compare", stores / "good.db", stores / name)
    assert line.startswith("ragguard compare: ")
    assert way_out in line


def test_a_gate_on_a_metric_that_one_side_lacks(stores):
    line = refusal("compare", stores / "good.db", stores / "more.db", "--fail-if", "coverage < 0")
    assert "one of udcg: metrics that both sides have; score both with the same scorers" in line
    shown = ragguard("compare", stores / "good.db", stores / "more.db")
    assert "On one side only: coverage." in shown.output


def test_fewer_questions_than_any_test_can_use_get_a_sentence_and_no_p(tmp_path):
    first, second = (
        scored_store(tmp_path / name, side(gain)[:5]) for name, gain in (("a.db", 0), ("b.db", 0.3))
    )
    done = ragguard("compare", first, second)
    assert "too few questions" in " ".join(done.output.split())
    assert "p =" not in done.output


def test_calibration_without_a_passage_to_drop_is_a_sentence(tmp_path):
    gold, asked = (
        [Passage("Ursula Almberg founded Corwell Mills.", metadata={"gold": True})],
        "Who founded it?",
    )
    runs = [
        Run(f"r{n}", asked, steps=[RetrievalStep(f"s{n}", f"r{n}", 0, 0, asked, gold)]) for n in range(20)
    ]
    write_runs(runs, tmp_path / "gold.jsonl")
    out = tmp_path / "found.json"
    line = refusal("calibrate", tmp_path / "gold.jsonl", "--engine", "nano", "--out", out)
    assert "all passages of the 20 examples are gold, so nothing says what to drop" in line
    assert not out.exists()


@pytest.mark.parametrize(
    "options", [("--since", "5x"), ("--since", "24h"), ("--since", "1d", "--on", "processes:1", "--out", "x"),
                ("--write-back", "--on", "processes:1", "--out", "x")]
)  # fmt: skip
def test_score_of_files_refuses_what_is_for_servers(stores, options):
    line = refusal("score", stores / "runs.jsonl", *options)
    assert line.partition(": got ")[0] in (f"ragguard score: {options[0]}", "ragguard score: since")
