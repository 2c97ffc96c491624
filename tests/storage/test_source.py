"""A folder of scored parts, and a score file, read as a store of the same runs does."""

import math
from contextlib import closing
from dataclasses import replace

import pytest
from support.mean_checks import check_same_means
from support.means import means_of
from support.parts import write_part, write_parts
from support.runs import a_run
from support.scored_runs import two_hops
from support.stored import scored_store

from ragguard.analysis.page import detail, summary
from ragguard.errors import SchemaMismatch, StoreError
from ragguard.records import Decision, Dropped, Failure, Score, ScoredRun, Usage
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.runfile import write_scores
from ragguard.storage.source import open_source, read_means, read_scored
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
    return scored_store(tmp_path_factory.mktemp("stores") / "s.db", RUNS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "scores"
    write_parts(path, RUNS, size=3)
    return path


def listed(source):
    """The runs as lines of a list."""
    return [summary(overview) for overview in source.overviews(texts=False)]


def page_of(source):
    """The runs as a page shows them, without the numbers that steps have in their store."""
    pages = [detail(overview, {}) for overview in source.overviews()]
    for step in (step for page in pages for step in page["steps"]):
        del step["place"]
    return pages


def test_means_are_those_of_the_records_and_of_a_store(folder, store):
    check_same_means(read_means(folder), map(means_of, RUNS))
    check_same_means(read_means(folder), read_means(store))


def test_lines_and_pages_are_those_of_a_store(folder, store):
    assert listed(open_source(folder)) == listed(open_source(store))
    assert page_of(open_source(folder)) == page_of(open_source(store))


def test_records_are_those_that_were_written(folder):
    source = open_source(folder)
    assert list(source.scored_runs()) == RUNS
    assert list(read_scored(folder)) == RUNS


def test_score_file_has_the_means_of_its_scores(tmp_path):
    write_scores(RUNS[:7], tmp_path / "scores.jsonl")
    read = {means.question: means.means for means in read_means(tmp_path / "scores.jsonl")}
    assert read == {means.question: pytest.approx(means.means) for means in map(means_of, RUNS[:7])}


def test_missing_parts_failed_scores_and_rejected_lines_are_remarked(tmp_path):
    keys = write_parts(tmp_path / "scores", RUNS[:6], rejected=1)
    (tmp_path / "scores" / "parts" / f"{keys[1]}.json").unlink()
    source = open_source(tmp_path / "scores")
    assert [one.run.id for one in source.scored_runs()] == ["r0", "r1", "r4", "r5"]
    missing, failed, rejected = source.remarks
    assert "1 of 3 parts are missing" in missing
    assert "1 score failed, in 1 of 4 runs; most often belief, EngineTimeout: too late" in failed
    assert "2 lines of the input were rejected" in rejected
    remarks = []
    assert len(list(read_means(tmp_path / "scores", remarks))) == 4
    assert remarks == source.remarks


def test_parts_come_in_the_order_of_the_input(tmp_path):
    folder = PartFolder(tmp_path / "scores")
    folder.begin({}, 1, ["b", "c", "a"])
    for key, one in zip("abc", RUNS, strict=False):
        write_part(folder, key, [one])
    assert [one.run.id for one in open_source(tmp_path / "scores").scored_runs()] == ["r1", "r2", "r0"]


@pytest.mark.parametrize("kind", ["db", "json"])
@pytest.mark.parametrize("size", [0, 9])
def test_damaged_file_is_named_with_the_way_out(tmp_path, kind, size):
    keys = write_parts(tmp_path / "scores", RUNS[:6])
    file = tmp_path / "scores" / "parts" / f"{keys[1]}.{kind}"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(StoreError, match=rf"{file.name} is damaged.*; remove .* scores this part again"):
        open_source(tmp_path / "scores")


def test_folder_that_is_none_or_of_another_version_is_an_error(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError, match="is no folder of scored parts"):
        open_source(tmp_path / "other")
    PartFolder(tmp_path / "begun").begin({}, 1, ["a"])
    with pytest.raises(StoreError, match="has no complete part yet"):
        open_source(tmp_path / "begun")
    (tmp_path / "begun" / "settings.json").write_text('{"format": "ragguard.parts/2"}')
    with pytest.raises(SchemaMismatch, match=r"ragguard\.parts/2"):
        open_source(tmp_path / "begun")


def test_report_of_a_store_has_the_reason_of_most_failures_in_one_line(tmp_path):
    unfit = [
        Failure("belief", "UnfitText", f"nano does not know {share}% of the words") for share in (23, 30)
    ]
    scored = [replace(RUNS[0], failures=unfit), replace(RUNS[1], failures=[])]
    with closing(Store(tmp_path / "a.db", scored=False)) as store:
        store.add_scored(scored)
    (remark,) = open_source(tmp_path / "a.db").remarks
    assert remark.endswith(
        "a.db: 2 scores failed, in 1 of 2 runs; most often belief, UnfitText: nano does not know 23% of the words"
    )
