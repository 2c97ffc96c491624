"""A folder of scored parts reads as a store of the same runs does."""

import contextlib
import json
import math
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from support.mean_checks import check_same_means
from support.parts import write_part, write_parts
from support.runs import a_run
from support.scored_runs import two_hops

from ragguard.analysis.digest import MISLEADS, detail, scores_json, summary
from ragguard.errors import InvalidInput, SchemaMismatch, StoreError
from ragguard.records import Decision, Dropped, Failure, Run, Score, ScoredRun, Usage
from ragguard.storage.files import parts_source
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.scorefile import read_means, read_scored
from ragguard.storage.source import open_source
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.means import means_of
from ragguard.storage.sqlite.store import Store


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
        store.put(one.run)
        store.settle(ScoringOutcome(one.run.id, "x", 1, one.scores, one.failures))
    store.close()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "scores"
    write_parts(path, RUNS, size=3)
    return path


def texts():
    return [one.run for one in RUNS]


def test_means_are_those_of_the_records_and_of_a_store(folder, store):
    check_same_means(read_means(folder), map(means_of, RUNS))
    check_same_means(read_means(folder), read_means(store))


def test_lines_of_a_list_are_those_of_a_store(folder, store):
    mine, theirs = (list(open_source(path).lines(MISLEADS)) for path in (folder, store))
    assert mine == theirs
    assert [summary(line) for line in mine] == [summary(line) for line in theirs]


def test_a_folder_from_before_the_column_of_unread_passages_counts_all_passages(tmp_path):
    def misleading():
        """Of r4, whose passages have utilities of -0.76, -0.38 and -0.25; the guard dropped the first."""
        return {line.id: line.misleading for line in open_source(tmp_path / "p").lines(MISLEADS)}["r4"]

    write_parts(tmp_path / "p", RUNS, size=3)
    assert misleading() == 2
    for path in (tmp_path / "p/runs").glob("*.parquet"):
        parquet.write_table(parquet.read_table(path).drop_columns(["unread"]), path)
    assert misleading() == 3


def page_of(source):
    """What a page is made of, with steps numbered from 0."""
    pages = []
    for overview in source.overviews(MISLEADS):
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


def test_pages_with_the_run_files_are_those_of_a_store(folder, store):
    source = open_source(folder, texts)
    assert page_of(source) == page_of(open_source(store))
    assert source.has_texts
    assert "texts" not in " ".join(source.remarks)


def test_run_files_in_another_order_give_the_same(folder):
    def shuffled():
        return [RUNS[at].run for at in (9, 3, 8, 0, 7, 1, 6, 2, 5, 4)]

    assert page_of(open_source(folder, shuffled)) == page_of(open_source(folder, texts))


def test_records_are_those_that_were_written(folder):
    assert list(open_source(folder, texts).scored_runs()) == RUNS
    alone = list(read_scored(folder))
    assert [one.scores for one in alone] == [one.scores for one in RUNS]
    assert [one.failures for one in alone] == [one.failures for one in RUNS]
    assert [(one.run.id, one.run.question, one.run.steps) for one in alone] == [
        (one.run.id, one.run.question, []) for one in RUNS
    ]


def test_scores_of_one_level(folder, store):
    mine, theirs = (list(open_source(path).scored_runs(level="run")) for path in (folder, store))
    assert [one.scores for one in mine] == [one.scores for one in theirs]
    assert {score.level for one in mine for score in one.scores} == {"run"}


def test_one_run(folder, store):
    source = open_source(folder, texts)
    assert list(source.run_ids()) == list(open_source(store).run_ids())
    for one in RUNS:
        for found in (source.scored_run(one.run.id), open_source(store).scored_run(one.run.id)):
            assert (found.run, found.scores, found.failures) == (one.run, one.scores, one.failures)
    assert source.scored_run("none") is open_source(store).scored_run("none") is None


def test_without_texts_hops_are_known_by_their_scores(folder):
    source = open_source(folder)
    run = source.scored_run("r1").run
    [step] = run.steps  # of the other one nothing was said
    assert (step.id, step.index) == ("r1-s1", 1)
    assert [(passage.text, passage.id) for passage in step.passages] == [("", "p0"), ("", "p1"), ("", "p2")]
    page = next(page for page in source.overviews(MISLEADS) if page.row["id"] == "r1")
    [line] = page.steps
    assert (line.texts, line.places) == (["(p0)", "(p1)", "(p2)"], 0)
    assert {row[0] for row in json.loads(page.summary.of_passages)} == {line.seq}
    assert not source.has_texts


def test_runs_that_the_run_files_lack_are_told(folder):
    other = replace(RUNS[4].run, question="another question under the same id")
    source = open_source(folder, lambda: [RUNS[2].run, other, *(one.run for one in RUNS[5:])])
    pages = list(source.overviews(MISLEADS))
    assert [bool(page.references) for page in pages[:6]] == [False, False, True, False, False, True]
    assert source.remarks[-1].endswith("4 runs are not in the run files and come without texts")


def test_a_few_parts_are_read_at_once(folder, monkeypatch):
    monkeypatch.setattr(parts_source, "BATCH_BYTES", 1)
    check_same_means(read_means(folder), map(means_of, RUNS))
    assert list(open_source(folder, texts).scored_runs()) == RUNS


def test_what_is_missing_is_told(folder, tmp_path):
    keys = write_parts(tmp_path / "scores", RUNS[:6], rejected=1)
    (tmp_path / "scores" / "parts" / f"{keys[1]}.parquet").unlink()
    source = open_source(tmp_path / "scores")
    assert [one.run.id for one in source.scored_runs()] == ["r0", "r1", "r4", "r5"]
    missing, failed, rejected = source.remarks
    assert "1 of 3 parts are missing" in missing
    assert "1 scores failed, in 1 of 4 runs; most often belief, EngineTimeout: too late" in failed
    assert "2 lines of the input were rejected" in rejected
    remarks = []
    assert len(list(read_means(tmp_path / "scores", remarks))) == 4
    assert remarks == source.remarks


def test_parts_come_in_the_order_of_the_input(tmp_path):
    folder = PartFolder(tmp_path / "scores")
    folder.begin({"settings": {}, "part_bytes": 1}, ["b", "c", "a"])
    for key, one in zip("abc", RUNS, strict=False):
        write_part(folder, key, [one])
    assert list(open_source(tmp_path / "scores").run_ids()) == ["r1", "r2", "r0"]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_of_runs_with_the_same_id_the_first_is_read_and_the_others_are_told(tmp_path, size):
    again = scored(0)
    again.run.question, again.scores[:] = "who asks again?", [replace(one, value=0.9) for one in again.scores]
    whole, once = tmp_path / "twice", tmp_path / "once"
    write_parts(whole, [RUNS[0], RUNS[1], again, RUNS[3], again, RUNS[2]], size=size)
    write_parts(once, [RUNS[0], RUNS[1], RUNS[3], RUNS[2]])
    with contextlib.closing(open_source(whole)) as source, contextlib.closing(open_source(once)) as expected:
        assert "2 run ids stand twice; the first run of each is read" in " ".join(source.remarks)
        assert source.run_ids() == expected.run_ids()
        assert list(source.lines(MISLEADS)) == list(expected.lines(MISLEADS))
        assert list(source.scored_runs()) == list(expected.scored_runs())
        for run_id in ("r0", "r3"):
            assert source.scored_run(run_id) == expected.scored_run(run_id)
        assert page_of(source) == page_of(expected)
    check_same_means(read_means(whole), read_means(once))


def test_a_run_that_counts_other_scores_than_there_are_is_damage_where_its_id_stands_twice(tmp_path):
    [key] = write_parts(tmp_path / "s", [RUNS[0], RUNS[0]])
    path = tmp_path / "s" / "scores" / f"{key}.parquet"
    table = parquet.read_table(path)
    parquet.write_table(table[1:], path)
    with pytest.raises(StoreError, match="is damaged: its runs count"):
        list(open_source(tmp_path / "s").lines(MISLEADS))


@pytest.mark.parametrize("table", ["scores", "failures", "runs", "parts"])
@pytest.mark.parametrize("damage", ["cut", "noise", "gone", "empty"])
def test_a_damaged_file_is_named(tmp_path, table, damage):
    folder = tmp_path / "scores"
    keys = write_parts(folder, RUNS[:6])
    file = folder / table / f"{keys[1]}.parquet"
    content = file.read_bytes()
    if damage == "gone":
        if table == "parts":
            return  # such a part is not complete, and none of its files is read
        file.unlink()
    else:
        file.write_bytes(
            {"cut": content[: len(content) // 2], "noise": b"PAR1" + b"\xff" * len(content), "empty": b""}[
                damage
            ]
        )
    source = open_source(folder)
    with pytest.raises(StoreError, match=f"{table}/{keys[1]}.parquet in .* remove parts/{keys[1]}.parquet"):
        assert list(source.overviews(MISLEADS)) != source.remarks


@pytest.mark.parametrize("at", range(0, 4000, 400))
def test_a_changed_byte_gives_numbers_or_a_sentence(tmp_path, at):
    folder = tmp_path / "scores"
    [key] = write_parts(folder, RUNS[:2])
    file = folder / "scores" / f"{key}.parquet"
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= 0x55
    file.write_bytes(content)
    with suppress(StoreError):
        assert len(list(read_means(folder))) == 2


def test_another_version_is_refused(tmp_path):
    folder = tmp_path / "scores"
    [key] = write_parts(folder, RUNS[:2])
    file = folder / "scores" / f"{key}.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.replace_schema_metadata({"format": "ragguard.parts/99"}), file)
    with pytest.raises(SchemaMismatch, match=r"ragguard\.parts/99"):
        list(read_means(folder))
    for column in ("value", "name"):
        parquet.write_table(table.drop_columns([column]), file)
        with pytest.raises(StoreError, match=f"lacks the columns {column}"):
            list(read_means(folder))
    (folder / "settings.json").write_text('{"format": "ragguard.parts/99"}')
    with pytest.raises(SchemaMismatch, match=r"ragguard\.parts/99"):
        open_source(folder)


def test_a_score_of_an_unknown_run_is_damage(tmp_path):
    folder = tmp_path / "scores"
    [key] = write_parts(folder, RUNS[:2])
    file = folder / "runs" / f"{key}.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.slice(1), file)
    with pytest.raises(StoreError, match="it has scores of runs that it does not hold"):
        list(read_means(folder))


def test_what_is_no_folder_of_parts(tmp_path):
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
