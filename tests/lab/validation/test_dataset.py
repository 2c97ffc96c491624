"""Data sets of every format become contexts; what is none is told with its place and the way out."""

import json

import pytest

from ragguard import RagGuard, world
from ragguard.errors import InvalidInput, RagguardError, StoreError
from ragguard.lab.validation.contexts import rank_values, run_of
from ragguard.lab.validation.dataset import read_dataset
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.storage.files.runfile import write_runs


def lines(path, *objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")
    return path


RUN = {
    "id": "a", "question": "who?", "references": ["Ada"], "answer": "Ada", "metadata": {"outcome": "correct"},
    "steps": [{"passages": [{"text": "x", "id": "p1", "grade": 5}, {"text": "y", "grade": 1}]}],
}  # fmt: skip


def test_a_run_is_a_context_with_its_outcome(tmp_path):
    (found,) = read_dataset(lines(tmp_path / "runs.jsonl", RUN))
    assert (found.id, found.question_id, found.question, found.answer) == ("a", "who?", "who?", "Ada")
    assert [(passage.text, passage.id) for passage in found.passages] == [("x", "p1"), ("y", "")]
    assert (found.relevance, found.outcome, found.references) == ((1.0, 0.0), 2.0, ("Ada",))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"metadata": {"outcome": "good"}}, "run b, metadata, outcome: .*correct, abstained, wrong"),
        ({"metadata": {"outcome": [1]}}, "run b, metadata, outcome: .*a number"),
        ({"steps": "none"}, "runs.jsonl, line 2, steps: .*a list"),
        ({"id": "a"}, "it is there twice"),
    ],
)
def test_wrong_line_of_a_data_set_is_named(tmp_path, changed, told):
    path = lines(tmp_path / "runs.jsonl", RUN, RUN | {"id": "b"} | changed)
    with pytest.raises(InvalidInput, match=told):
        read_dataset(path)


def graded_run(number, outcome=None, grades=(5, 2)):
    passages = [Passage(f"text {place}", f"p{place}", grade=grade) for place, grade in enumerate(grades)]
    return Run(
        id=f"r{number}", question="who?", references=["Ada"], answer="Ada",
        steps=[RetrievalStep(id=f"s{number}{i}", index=i, query="q", passages=passages) for i in range(2)],
        metadata={} if outcome is None else {"outcome": outcome},
    )  # fmt: skip


def test_run_files(tmp_path):
    for name in ("runs.jsonl", "runs.jsonl.gz"):
        write_runs([graded_run(1, 2), graded_run(2)], tmp_path / name)
        first, second = read_dataset(tmp_path / name)
        assert [passage.text for passage in first.passages] == ["text 0", "text 1"]
        assert (first.relevance, first.outcome, first.answer) == ((1.0, 0.0), 2.0, "Ada")
        assert second.outcome is None


def test_places_that_a_guard_left_empty_count_in_the_context_of_a_run(tmp_path):
    kept = graded_run(1, 2)
    kept.steps[0].k, kept.steps[1].k = 5, 4
    write_runs([kept, graded_run(2, 1)], tmp_path / "runs.jsonl")
    first, second = read_dataset(tmp_path / "runs.jsonl")
    assert (first.k, second.k) == (2 + 3 + 2, 2)
    assert rank_values(first)["precision"] == pytest.approx(1 / 7)
    assert rank_values(second)["precision"] == pytest.approx(1 / 2)
    assert run_of(first).steps[0].places == 7


def test_a_run_that_found_nothing_is_told_from_one_whose_retrieval_failed(tmp_path):
    def of(name, **fields):
        steps = [RetrievalStep(f"{name}s", name, query="who?", **fields)] if fields else []
        return Run(id=name, question="who?", steps=steps, metadata={"outcome": 1})

    write_runs([of("none", k=3), of("failed", status="error"), of("closed")], tmp_path / "runs.jsonl")
    none, failed, closed = read_dataset(tmp_path / "runs.jsonl")
    assert (none.relevance, none.k, none.found_nothing, none.readable) == ((), 3, True, True)
    assert rank_values(none)["precision"] == 0.0
    for one in (failed, closed):
        assert (one.relevance, one.found_nothing, one.readable) == (None, False, False)
        assert run_of(one).steps == []


def test_stores_bring_their_scores(tmp_path):
    path = tmp_path / "s.db"
    (case,) = world.cases(1, seed=5)
    with RagGuard("nano", store=path, scorers=("utility", "coverage")) as rg:
        with rg.run(case.question, references=case.references) as run:
            run.retrieved(case.question, [*case.gold, *case.distractors[:2]])
            run.answered(case.references[0])
        assert rg.flush(60)
    (found,) = read_dataset(path)
    assert found.passages[0].text == case.gold[0].text
    assert found.outcome == 1.0
    assert "udcg_context" in found.given
    assert "answer_correct" not in found.given


@pytest.fixture
def trec(tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 d1 2\nq1 0 d2 0\nq1 0 d9 1\nq2 0 d1 -1\n")
    (tmp_path / "good.run").write_text("q1 Q0 d2 2 0.5 x\nq1 Q0 d1 1 0.9 x\nq2 Q0 d1 1 1 x\nq3 Q0 d1 1 1 x\n")
    (tmp_path / "bad.run").write_text("q1 Q0 d7 1 3 x\n")
    lines(
        tmp_path / "outcomes.jsonl",
        {"question_id": "q1", "run": "good", "outcome": 2},
        {"question_id": "q1", "run": "bad", "answer": "Ada", "references": ["Bo"]},
    )
    return tmp_path


def test_a_folder_of_trec_files(trec):
    found = {context.id: context for context in read_dataset(trec)}
    assert set(found) == {"good/q1", "good/q2", "bad/q1"}  # q3 was not judged
    good = found["good/q1"]
    assert [passage.id for passage in good.passages] == ["d1", "d2"]  # by score, not as they stand
    assert (good.relevance, good.ideal, good.outcome, good.question) == ((2, 0), (2, 1, 0), 2, "q1")
    assert found["good/q2"].relevance == (0,)
    assert (found["bad/q1"].answer, found["bad/q1"].references, found["bad/q1"].outcome) == (
        "Ada",
        ("Bo",),
        None,
    )
    (only, *_) = read_dataset(trec, k=1)
    assert len(only.passages) == 1


def test_a_system_that_found_nothing_has_no_line_but_an_outcome(trec):
    with (trec / "outcomes.jsonl").open("a") as file:
        file.write('{"question_id": "q2", "run": "bad", "outcome": 0}\n')
        file.write('{"question_id": "q3", "run": "bad", "outcome": 0}\n')  # q3 was not judged
    found = {context.id: context for context in read_dataset(trec)}
    assert set(found) == {"good/q1", "good/q2", "bad/q1", "bad/q2"}
    assert (found["bad/q2"].found_nothing, found["bad/q2"].outcome) == (True, 0)


def test_a_beir_folder(trec):
    lines(trec / "queries.jsonl", {"_id": "q1", "text": "who?", "answers": ["Ada"]})
    lines(trec / "corpus.jsonl", *({"_id": f"d{n}", "title": "T", "text": f"text {n}"} for n in range(9)))
    (trec / "qrels.txt").unlink()
    (trec / "qrels").mkdir()
    (trec / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    found = {context.id: context for context in read_dataset(trec)}
    assert set(found) == {"good/q1", "bad/q1"}
    assert [passage.text for passage in found["good/q1"].passages] == ["T\ntext 1", "T\ntext 2"]
    assert found["good/q1"].references == ("Ada",)


def test_runs_and_judgements_of_other_queries(trec):
    (trec / "qrels.txt").write_text("other 0 d1 1\n")
    with pytest.raises(InvalidInput, match="files of the same queries"):
        read_dataset(trec)
    for run in trec.glob("*.run"):
        run.unlink()
    with pytest.raises(InvalidInput, match=r"judgements and \*\.run files"):
        read_dataset(trec)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("qrels.txt", "q1 d1\n", "qrels.txt, line 1: .*query 0 document grade"),
        (
            "qrels.txt",
            "q1 0 d1 2\nq1 0 d1 2\nq1 0 d1 0\n",
            "line 3: .*one grade a document: it has 2 already",
        ),
        ("qrels.txt", "q1 0 d1 much\n", "a number instead of 'much'"),
        ("good.run", "q1 Q0 d1 1\n", "good.run, line 1: .*rank score name"),
        ("outcomes.jsonl", "{\n", "outcomes.jsonl, line 1, JSON"),
        ("outcomes.jsonl", '{"run": "good"}\n', "question_id: .*needed"),
    ],
)
def test_broken_lines_of_rankings(trec, name, text, told):
    (trec / name).write_text(text)
    with pytest.raises(InvalidInput, match=told):
        read_dataset(trec)


def test_path_without_a_data_set_is_refused(tmp_path):
    with pytest.raises(StoreError, match="check the path"):
        read_dataset(tmp_path / "none.jsonl")
    with pytest.raises(InvalidInput, match="a folder of something else"):
        read_dataset(tmp_path)
    for name, content in (
        ("text.txt", b"a page of words\n"), ("empty.jsonl", b""), ("other.json", b'{"rows": []}'),
        ("binary.bin", bytes(range(256))), ("list.json", b"[1, 2]"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RagguardError):
            read_dataset(tmp_path / name)
