"""A folder of scored parts reads as a store of the same runs does."""

import contextlib
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mean_checks import check_same_means
from support.means import means_of
from support.parts import write_part, write_parts
from support.runs import a_run
from support.scored_runs import two_hops

from ragguard.analysis.digest import MISLEADS, detail, scores_json, summary
from ragguard.errors import InvalidInput, SchemaMismatch, StoreError
from ragguard.records import Decision, Dropped, Failure, Run, Score, ScoredRun, Usage
from ragguard.storage import source
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.source import read_means, read_scored
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store


def listed(opened):
    """The runs of a store as lines of a list."""
    return [overview.line for overview in opened.store.overviews(MISLEADS, texts=False)]


def scored(number):
    """A run with a guarded hop, scores of all levels and kinds, and every third time a failure."""
    run = a_run(f"r{number}", question=f"who is “{number}”?")
    guarded = run.steps[0]
    guarded.decision = Decision(
        guarded.passages[1:], [Dropped(guarded.passages[0], 1, "utility -0.80 < -0.20", -0.8)], "pruned", 1.5
    )
    guarded.passages, guarded.k = guarded.passages[1:], 4 + number % 3
    of = {
        "run_id": run.id,
        "step_id": run.steps[number % 2].id,
        "usage": Usage(1, 3, 100 + number, 2, 0.5, 1),
    }
    made = {"prompts": "p/1", "scorer": "utility", "version": "1.a"}
    value = math.sin(number)
    scores = [
        *(
            Score("utility", value / (place + 1), "passage", passage_id=f"p{place}", position=place + 1,
                  engine=f"m{place % 2}", **of, **made)
            for place in range(3)
        ),
        Score("answerability", float(number % 6), "passage", position=2, sub_question=1, expectation=2.5, **of),
        Score("redundancy", 0.5, "passage", passage_id="p1", **of),
        Score("udcg", value, "step", stderr=0.12345, label='a "label"', **of, **made),
        Score("udcg", -value, "step", stage="candidates", **of, **made),
        Score("udcg", value / 3, "step", **of, **made | {"version": "2.b"}),
        Score("seper", value, "step", reference_source="gold", references_hash="h", **of),
        Score("seper", value / 2, "step", reference_source="answer", **of),
        Score("delta_seper_total", value, "run", run.id, reference_source="gold", stderr=abs(value)),
        Score("delta_seper", value, "step", metadata={"dropped_passages": 2, "cut_tokens": 30}, **of),
        Score("p_abstain", 0.5, "passage", position=2, metadata={"cut_tokens": 7}, **of),
        Score("udcg_context", value / 7, "run", run.id, stage="candidates", explanation="why\nso"),
        Score("coverage_total", 0.25, "run", run.id, metadata={"sub_questions": ["wo?", f"“{number}”"]}),
        Score("answer_correct", 1.0, "run", run.id, label="correct"),
    ]  # fmt: skip
    failures = [Failure("belief", "EngineTimeout", "too late", True, run.id, run.steps[0].id)] * (
        number % 3 == 0
    )
    return ScoredRun(run, scores, failures)


RUNS = [
    *(scored(number) for number in range(7)),
    replace(two_hops(), started_ns=0, ended_ns=0),
    ScoredRun(a_run("nothing was said of it", steps=0)),
    ScoredRun(a_run("it failed"), [], [Failure("run", "EngineUnreachable", "gone", True, "it failed")]),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "s.db"
    store = Store(path)
    for one in RUNS:
        store.add_run(one.run)
        store.store_outcome(ScoringOutcome(one.run.id, "x", 1, one.scores, one.failures))
    store.close()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "scores"
    write_parts(path, RUNS, size=3)
    return path


def texts():
    return [one.run for one in RUNS]


@pytest.fixture
def open_source():
    """Opens sources that are closed at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(contextlib.closing(source.open_source(*given)))


def test_means_are_those_of_the_records_and_of_a_store(folder, store):
    check_same_means(read_means(folder), map(means_of, RUNS))
    check_same_means(read_means(folder), read_means(store))


def test_lines_of_a_list_are_those_of_a_store(open_source, folder, store):
    mine, theirs = (listed(open_source(path)) for path in (folder, store))
    assert mine == theirs
    assert [summary(line) for line in mine] == [summary(line) for line in theirs]


def page_of(source):
    """What a page is made of, with steps numbered from 0."""
    pages = []
    for overview in source.store.overviews(MISLEADS):
        numbers = {step.seq: at for at, step in enumerate(overview.steps)}
        of_passages, of_steps, of_run = json.loads(scores_json(overview))
        for row in (*of_passages, *of_steps):
            row[0] = numbers[row[0]]
        shown = detail(overview, _Shown())
        for step in shown["steps"]:
            step["place"] = numbers[step["place"]]
        pages.append((summary(overview.line), shown, of_passages, of_steps, of_run))
    return pages


class _Shown(dict):
    """Stands in for the numbers of texts, so that texts are compared and not their numbers."""

    def setdefault(self, text, number):
        return text


def test_pages_with_the_run_files_are_those_of_a_store(open_source, folder, store):
    opened = open_source(folder, texts)
    assert page_of(opened) == page_of(open_source(store))
    assert opened.has_texts
    assert "texts" not in " ".join(opened.remarks)


def test_run_files_in_another_order_give_the_same(open_source, folder):
    def shuffled():
        return [RUNS[at].run for at in (9, 3, 8, 0, 7, 1, 6, 2, 5, 4)]

    assert page_of(open_source(folder, shuffled)) == page_of(open_source(folder, texts))


def test_records_are_those_that_were_written(open_source, folder):
    assert list(open_source(folder, texts).store.scored_runs()) == RUNS
    alone = list(read_scored(folder))
    assert [one.scores for one in alone] == [one.scores for one in RUNS]
    assert [one.failures for one in alone] == [one.failures for one in RUNS]
    assert [(one.run.id, one.run.question) for one in alone] == [
        (one.run.id, one.run.question) for one in RUNS
    ]
    assert [[(step.id, step.k) for step in one.run.steps] for one in alone] == [
        [(step.id, step.k) for step in one.run.steps] for one in RUNS
    ]
    assert {passage.text for one in alone for step in one.run.steps for passage in step.candidates} == {""}


def test_scores_of_one_level(open_source, folder, store):
    mine, theirs = (list(open_source(path).store.scored_runs(level="run")) for path in (folder, store))
    assert [one.scores for one in mine] == [one.scores for one in theirs]
    assert {score.level for one in mine for score in one.scores} == {"run"}


def test_one_run(open_source, folder, store):
    opened = open_source(folder, texts)
    assert opened.store.run_ids() == open_source(store).store.run_ids()
    for one in RUNS:
        for found in (opened.store.scored_run(one.run.id), open_source(store).store.scored_run(one.run.id)):
            assert (found.run, found.scores, found.failures) == (one.run, one.scores, one.failures)
    assert opened.store.scored_run("none") is None


def test_folder_alone_shows_passages_by_their_ids_and_which_were_read(open_source, folder):
    opened = open_source(folder)
    step = opened.store.scored_run("r1").run.steps[0]
    assert [(passage.text, passage.id) for passage in step.candidates] == [("", "p0"), ("", "p1"), ("", "p2")]
    page = next(page for page in opened.store.overviews(MISLEADS) if page.row["id"] == "r1")
    line = page.steps[0]
    assert (line.texts, line.kept, line.places) == (["(p0)", "(p1)", "(p2)"], [False, True, True], 5)
    assert not opened.has_texts


def test_runs_that_the_run_files_lack_are_told(open_source, folder):
    other = replace(RUNS[4].run, question="another question under the same id")
    opened = open_source(folder, lambda: [RUNS[2].run, other, *(one.run for one in RUNS[5:])])
    pages = list(opened.store.overviews(MISLEADS))
    assert [bool(page.references) for page in pages[:6]] == [False, False, True, False, False, True]
    assert opened.remarks[-1].endswith("4 runs are not in the run files and come without texts")


def test_missing_parts_failed_scores_and_rejected_lines_are_remarked(open_source, folder, tmp_path):
    keys = write_parts(tmp_path / "scores", RUNS[:6], rejected=1)
    (tmp_path / "scores" / "parts" / f"{keys[1]}.json").unlink()
    opened = open_source(tmp_path / "scores")
    assert [one.run.id for one in opened.store.scored_runs()] == ["r0", "r1", "r4", "r5"]
    missing, failed, rejected = opened.remarks
    assert "1 of 3 parts are missing" in missing
    assert "1 scores failed, in 1 of 4 runs; most often belief, EngineTimeout: too late" in failed
    assert "2 lines of the input were rejected" in rejected
    remarks = []
    assert len(list(read_means(tmp_path / "scores", remarks))) == 4
    assert remarks == opened.remarks


def test_parts_come_in_the_order_of_the_input(open_source, tmp_path):
    folder = PartFolder(tmp_path / "scores")
    folder.begin({"settings": {}, "part_bytes": 1}, ["b", "c", "a"])
    for key, one in zip("abc", RUNS, strict=False):
        write_part(folder, key, [one])
    assert open_source(tmp_path / "scores").store.run_ids() == ["r1", "r2", "r0"]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_of_runs_with_the_same_id_the_first_is_read_and_the_others_are_told(open_source, tmp_path, size):
    again = scored(0)
    again.run.question, again.scores[:] = "who asks again?", [replace(one, value=0.9) for one in again.scores]
    whole, once = tmp_path / "twice", tmp_path / "once"
    write_parts(whole, [RUNS[0], RUNS[1], again, RUNS[3], again, RUNS[2]], size=size)
    write_parts(once, [RUNS[0], RUNS[1], RUNS[3], RUNS[2]])
    opened, expected = open_source(whole), open_source(once)
    assert "2 run ids stand twice; the first run of each is read" in " ".join(opened.remarks)
    assert opened.store.run_ids() == expected.store.run_ids()
    assert listed(opened) == listed(expected)
    assert list(opened.store.scored_runs()) == list(expected.store.scored_runs())
    for run_id in ("r0", "r3"):
        assert opened.store.scored_run(run_id) == expected.store.scored_run(run_id)
    assert page_of(opened) == page_of(expected)
    check_same_means(read_means(whole), read_means(once))


@pytest.mark.parametrize("table", ["scores", "failures", "runs", "steps", "parts"])
@pytest.mark.parametrize("damage", ["cut", "noise", "gone", "empty", "bit", "of another part"])
def test_damaged_file_is_named_with_the_way_out(open_source, tmp_path, table, damage):
    folder, suffix = tmp_path / "scores", "json" if table == "parts" else "parquet"
    keys = write_parts(folder, RUNS[:6])
    file = folder / table / f"{keys[1]}.{suffix}"
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
        if table == "parts":  # such a part is not complete, and none of its files is read
            assert len(list(read_means(folder))) == 4
            return
    else:
        half = len(content) // 2
        file.write_bytes(
            {
                "cut": content[:half], "noise": b"PAR1" + b"\xff" * len(content), "empty": b"",
                "bit": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
                "of another part": (file.parent / f"{keys[0]}.{suffix}").read_bytes(),
            }[damage]
        )  # fmt: skip
    with pytest.raises(
        StoreError, match=f"{table}/{keys[1]}.{suffix} in .* is damaged .* remove parts/{keys[1]}.json"
    ):
        open_source(folder)


def test_another_version_is_refused(open_source, tmp_path):
    write_parts(tmp_path / "scores", RUNS[:2])
    (tmp_path / "scores" / "settings.json").write_text('{"format": "ragguard.parts/99"}')
    with pytest.raises(SchemaMismatch, match=r"ragguard\.parts/99"):
        open_source(tmp_path / "scores")


def test_temporary_store_is_removed(open_source, folder, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened = open_source(folder)
    assert len(list(tmp_path.glob("ragguard-*/imported.db"))) == 1
    opened.close()
    assert list(tmp_path.iterdir()) == []
    assert len(list(read_means(folder))) == len(RUNS)
    monkeypatch.setattr("ragguard.storage.imported.TemporaryStore.add_part", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_source(folder)
    assert list(tmp_path.iterdir()) == []


def test_folder_without_parts_is_refused(open_source, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="no folder of scored parts"):
        open_source(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("text")
    with pytest.raises(StoreError, match="holds other files"):
        open_source(tmp_path / "other")
    PartFolder(tmp_path / "begun").begin({"settings": {}, "part_bytes": 1}, ["a"])
    with pytest.raises(StoreError, match="no complete part yet"):
        open_source(tmp_path / "begun")
    with pytest.raises(InvalidInput, match="a store has the texts"):
        open_source(tmp_path / "s.db", texts)
    with pytest.raises(StoreError, match="no address"):
        open_source("nosuch://bucket/scores")


def test_an_address_is_read_as_a_path_is(folder):
    assert list(read_means(folder.as_uri())) == list(read_means(folder))


VALUES = st.integers(-(2**30), 2**30).map(lambda n: n / 1024)  # sums of these are exact
SCORES = st.lists(
    st.tuples(
        st.sampled_from(["udcg", "utility"]), st.sampled_from(["passage", "step", "run"]),
        st.sampled_from(["gold", "answer", "none"]), st.sampled_from(["passages", "candidates"]),
        st.sampled_from(["m1", "m2"]), VALUES,
    ),
    max_size=30,
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.lists(SCORES, min_size=1, max_size=5))
def test_any_scores_have_the_means_of_their_records(tmp_path_factory, runs):
    every = []
    for number, rows in enumerate(runs):
        scores = [
            # A part is scored with one table of references: a judge sees them at a step, or it does not.
            Score(
                name, value, level, f"r{number}", source, reference_source=source, stage=stage, engine=engine
            )
            for name, level, source, stage, engine, value in rows
        ]
        every.append(ScoredRun(Run(f"r{number}", f"q{number}"), scores))
    folder = tmp_path_factory.mktemp("any") / "scores"
    write_parts(folder, every, size=2)
    check_same_means(read_means(folder), map(means_of, every))
