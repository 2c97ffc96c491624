"""Pictures of many runs: the numbers in them, and the files."""

from xml.etree import ElementTree

import pytest
from support.commands import ragguard
from support.outcomes import outcome
from support.overviews import overviews
from support.stored import scored_store

from ragguard.analysis.cause_tables import count_tables
from ragguard.analysis.figures import Pictures, write_figures
from ragguard.errors import InvalidInput, MissingDependency
from ragguard.facts.causes import CauseCounts, CauseNote
from ragguard.records import Passage, RetrievalStep, Run, Score, ScoredRun


def believed(number, name):
    """A run of two hops whose belief rises from 0.1 to 0.4 and 0.8; one retriever is always right."""
    right = name == "$hybrid" or number % 2
    run = Run(f"{name}-{number}", "who?", ["Ada"], "Ada" if right else "Carl", name=name)
    scores = [Score("likelihood_closed_book", 0.1, "run", run.id, reference_source="gold")]
    for hop, belief in ((0, 0.4), (1, 0.8)):
        passages = [Passage("Ada Berg founded it.")]
        step = RetrievalStep(
            f"{run.id}.{hop}", run.id, hop, hop, "who?", passages, passages, metadata={"retriever": name}
        )
        run.steps.append(step)
        scores.append(Score("likelihood", belief, "step", run.id, step.id, reference_source="gold"))
    scores.append(Score("answer_correct", float(right), "run", run.id, label="correct" if right else "wrong"))
    return ScoredRun(run, scores)


RUNS = [believed(number, name) for name in ("bm25", "$hybrid") for number in range(4)]


def test_pictures_hold_the_means_of_the_runs():
    pictures = Pictures()
    for overview in overviews(RUNS):
        pictures.add(overview.view, 100)
    title, points = pictures.belief()
    assert title == "Likelihood of a word of the reference"
    assert [(point.hop, round(point.mean, 3), point.runs) for point in points] == [
        (0, 0.1, 8),
        (1, 0.4, 8),
        (2, 0.8, 8),
    ]
    assert pictures.groups() == ("retriever", [("$hybrid", 4, 4), ("bm25", 2, 4)])
    assert pictures.cost() == [(2, 100.0, 8)]


def test_groups_that_are_left_out_of_a_table_and_a_picture_are_counted():
    pictures = Pictures()
    for overview in overviews([believed(number, f"s{number:02}") for number in range(18)]):
        pictures.add(overview.view, 100)
    data = pictures.as_data()
    assert (len(data["groups"]), data["more"]) == (8, 10)
    counts = CauseCounts()
    for number in range(18):
        counts.add(CauseNote("right"), f"run {number:02}")
    (table,) = [one for one in count_tables(counts) if one.name == "by-name"]
    assert len(table.rows) == 10
    assert table.notes == ("and 8 more; every run with its name: --csv FILE",)
    counts = CauseCounts()
    for number in range(10):
        counts.add(CauseNote("right"), f"run {number:02}")
    assert count_tables(counts)[-1].notes == ()


def test_files_are_svg_and_png_and_hold_the_labels(tmp_path):
    pytest.importorskip("matplotlib")
    names = write_figures(overviews(RUNS), tmp_path / "pictures")
    assert names == ["belief-by-hop", "causes", "retrievers"]
    for name in names:
        assert ElementTree.parse(tmp_path / "pictures" / f"{name}.svg").getroot().tag.endswith("svg")
        assert (tmp_path / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_no_runs_and_no_matplotlib_are_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match="at least one run"):
        write_figures([], tmp_path / "pictures")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"ragguard\[figures\]"):
        write_figures(overviews(RUNS), tmp_path / "pictures")
    assert not (tmp_path / "pictures").exists()


@pytest.fixture
def store(tmp_path):
    return scored_store(tmp_path / "runs.db", map(outcome, range(12)))


def report(store, *words, code=None):
    return ragguard("report", store, *words, code=code, env={"COLUMNS": "160"})


def test_page_and_pictures_of_one_cause(store, tmp_path):
    done = report(store, "--cause", "misled", "--html", tmp_path / "misled.html")
    assert done.output.startswith("2 runs written to"), done.output
    assert "runs.db, misled" in (tmp_path / "misled.html").read_text()
    done = report(store, "--cause", "overturned", "--html", tmp_path / "none.html", code=2)
    assert "a cause of one of the runs, which are right, not_found, misled" in done.output
    pytest.importorskip("matplotlib")
    done = report(store, "--figures", tmp_path / "pictures")
    assert done.output.startswith("written to"), done.output
    drawn = (tmp_path / "pictures" / "causes.svg").read_text()
    assert "<!-- misled" in drawn, "the texts of the runs decide what they count as"
    assert "<!-- unexplained" not in drawn


def test_run_that_words_blame_on_a_passage_is_not_listed_with_no_misleading_passage(store):
    lines = [line for line in report(store).output.splitlines() if "wrong" in line]
    assert [line for line in lines if "by words" in line]


def test_condition_on_a_cause_without_judged_runs_says_what_a_cause_is(tmp_path):
    sides = [scored_store(tmp_path / name, [outcome(5), outcome(11)]) for name in ("a.db", "b.db")]
    done = ragguard("compare", *sides, "--fail-if", "misled > 0.1", code=2)
    assert "a cause counts runs whose answers were judged on both sides, and there are none" in done.output
