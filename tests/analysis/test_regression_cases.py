"""Regression cases: a failed run fails again as a case, passes after the fix, and is stale without its passage."""

import json
from pathlib import Path

import pytest
from support.commands import ragguard
from support.program import run_suite
from support.stored import scored_store

from ragguard import Passage, RagGuard, RetrievalStep, Run, Score, ScoredRun
from ragguard.analysis.regression_cases import CorpusTexts, check_case, read_cases
from ragguard.errors import InvalidInput

QUESTION = "Who founded Corwell Mills?"
TRUE = Passage("Ursula Almberg founded Corwell Mills.", id="p1", metadata={"source": "mills.md"})
LIE = Passage("Greta Sandell founded Corwell Mills.", id="p2", metadata={"source": "old.md"})


def scored(
    run_id, read, answer, candidates=(), references=("Ursula Almberg",), question=QUESTION, **metadata
):
    step = RetrievalStep(f"{run_id}-0", run_id, query=question, passages=list(read),
                         candidates=list(candidates or read), metadata={})  # fmt: skip
    run = Run(run_id, question, references=list(references) or None, answer=answer, steps=[step], ended_ns=1,
              metadata=metadata)  # fmt: skip
    label = "correct" if answer in references else "wrong"
    scores = [
        Score("answer_correct", float(label == "correct"), "run", run_id, label=label, scorer="answers")
    ]
    return ScoredRun(run, [*scores, Score("udcg", 0.5, "step", run_id, step.id, scorer="utility")])


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    """A version that is misled, the same again, and one that is mended."""
    monkeypatch.chdir(tmp_path)
    misled = scored("r1", [LIE], "Greta Sandell", [LIE, TRUE], feedback={"thumb": "down"})
    scored_store("old.db", [misled, scored("r2", [TRUE], "Ursula Almberg", question="And who else?")])
    scored_store("again.db", [scored("n1", [LIE], "Greta Sandell")])
    scored_store("mended.db", [scored("n1", [TRUE], "Ursula Almberg")])
    return tmp_path


def printed(*words, code=0):
    return " ".join(ragguard(*words, code=code).output.split())


def test_a_failed_run_is_a_case_that_fails_again_and_passes_after_the_fix():
    assert "1 new case in cases.jsonl, which has 1" in printed("cases", "old.db", "r1")
    (case,) = read_cases("cases.jsonl")
    assert (case.question, case.cause, case.answer) == (QUESTION, "dropped", "Greta Sandell")
    assert [one.text for one in case.must_find] == [TRUE.text]
    assert [one.text for one in case.must_not_read] == [LIE.text]
    assert len(case.corpus) == 12
    said = printed("compare", "old.db", "again.db", "--cases", "cases.jsonl", code=1)
    assert "Regression cases: 1 failed" in said
    assert "old.md was read" in said
    said = printed("compare", "old.db", "mended.db", "--cases", "cases.jsonl")
    assert "Regression cases: 1 passed" in said
    data = json.loads(printed("compare", "old.db", "again.db", "--cases", "cases.jsonl", "--json", code=1))
    assert data["cases"][0]["status"] == "failed"
    assert "it answered 'Greta Sandell', not 'Ursula Almberg'" in data["cases"][0]["reasons"]


@pytest.mark.parametrize(
    ("options", "made"),
    [
        (["--cause", "dropped"], ["r1"]),
        (["--thumb", "down"], ["r1"]),
        (["--document", "mills.md"], ["r1", "r2"]),
        (["--document", "p2"], ["r1"]),
        (["r1", "r2", "--document", "p1"], ["r1", "r2"]),
    ],
)
def test_runs_are_chosen_by_cause_document_and_thumb(options, made):
    printed("cases", "old.db", *options)
    assert sorted(case.run for case in read_cases("cases.jsonl")) == made


def test_cases_are_added_to_the_file_once():
    printed("cases", "old.db", "r1")
    assert "0 new cases in cases.jsonl, which has 1" in printed("cases", "old.db", "r1")
    assert "1 new case in cases.jsonl, which has 2" in printed("cases", "old.db", "r2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["old.db"], "ids of runs, or --cause, --document or --thumb"),
        (["old.db", "--cause", "magic"], "--cause: got 'magic'"),
        (["old.db", "--thumb", "sideways"], "--thumb: got 'sideways'"),
        (["old.db", "--cause", "overturned"], "runs of this cause, document or thumb"),
        (["bare.db", "b1"], "a run with references, or one that a passage misled"),
        (["nothing.db", "r1"], "does not exist"),
    ],
)
def test_what_can_be_no_case_is_one_sentence(words, says):
    scored_store("bare.db", [scored("b1", [TRUE], "Something", references=())])
    assert says in printed("cases", *words, code=2)


def test_a_case_whose_passage_is_gone_is_stale():
    printed("cases", "old.db", "r1")
    (case,) = read_cases("cases.jsonl")
    changed = [Passage("Corwell Mills has no founder.", id="p1"), Passage("A mill.", id="p2")]
    result = check_case(case, scored("n", changed, "Nobody").run)
    assert (result.status, result.reasons) == (
        "stale", ("mills.md has another text now", "old.md has another text now")
    )  # fmt: skip
    Path("corpus").mkdir()
    Path("corpus/other.md").write_text("nothing of it")
    said = printed("compare", "old.db", "again.db", "--cases", "cases.jsonl", "--corpus", "corpus")
    assert "1 stale" in said
    Path("corpus/mills.md").write_text("# Mills\nUrsula   Almberg\nfounded Corwell Mills.")
    said = printed("compare", "old.db", "again.db", "--cases", "cases.jsonl", "--corpus", "corpus", code=1)
    assert "1 failed" in said, "what it must find is there"
    with pytest.raises(InvalidInput, match="a folder of text files"):
        CorpusTexts("corpus/none.jsonl" if Path("corpus/none.jsonl").exists() else "nowhere")


def test_a_case_that_the_new_side_was_not_asked_fails(stores):
    printed("cases", "old.db", "r1", "r2")
    said = printed("compare", "old.db", "mended.db", "--cases", "cases.jsonl", code=1)
    assert "1 not asked, 1 passed" in said
    assert "--corpus: got" in printed("compare", "old.db", "mended.db", "--corpus", "x", code=2)


def test_what_states_the_reference_is_found_whatever_passage_it_is():
    printed("cases", "old.db", "r1")
    (case,) = read_cases("cases.jsonl")
    other = Passage("The mills were founded by Ursula Almberg in 1901.")
    assert check_case(case, scored("n", [other], "Ursula Almberg").run).status == "passed"
    assert check_case(case, scored("n", [other], "It was Ursula Almberg.").run).status == "passed"
    nothing = check_case(case, scored("n", [], None, [TRUE]).run)
    assert nothing.reasons == ("mills.md was found and not read", "it has no answer")


def test_lines_that_are_no_cases_are_named(stores):
    for line, says in (
        ('{"question": "q"}', "line 1, format: got None"),
        ('{"format": "ragguard.case/1", "id": "a"}', "line 1, question"),
        ('{"format": "ragguard.case/1", "id": "a", "question": "q", "must_find": [5]}', "line 1, must_find"),
    ):
        Path("bad.jsonl").write_text(line)
        with pytest.raises(InvalidInput, match=says):
            read_cases("bad.jsonl")


SUITE = """
from ragguard import Passage, RagGuard

KNOWN = {known!r}

def test_case(ragguard_case):
    with RagGuard(engine=None, store=None) as rg:
        with rg.run(ragguard_case.question) as run:
            run.retrieved(ragguard_case.question, [Passage(text, id=id) for id, text in KNOWN])
            run.answered("Ursula Almberg")
        ragguard_case.check(run)
"""


@pytest.mark.parametrize(
    ("known", "outcome"),
    [
        ([("p1", TRUE.text)], "1 passed"),
        ([("p1", TRUE.text), ("p2", LIE.text)], "1 failed"),
        ([("p1", "gone"), ("p2", "gone")], "1 skipped"),
        (None, "1 skipped"),
    ],
)
def test_pytest_holds_the_application_to_cases(stores, known, outcome):
    printed("cases", "old.db", "r1")
    (stores / "test_app.py").write_text(SUITE.format(known=known or []))
    given = ["--ragguard-cases", "cases.jsonl"] if known else []
    shown = run_suite(stores, "-rs", *given)
    assert outcome in shown, shown
    if outcome == "1 failed":
        assert "old.md was read, which misled it" in shown
    if known and outcome == "1 skipped":
        assert "stale: mills.md has another text now" in shown


async def test_the_handle_of_a_run_can_be_checked():
    printed("cases", "old.db", "r1")
    (case,) = read_cases("cases.jsonl")
    async with RagGuard(engine=None, store=None) as rg:
        async with rg.run(QUESTION) as run:
            run.retrieved(QUESTION, [TRUE])
            run.answered("Ursula Almberg")
        assert check_case(case, run.record()).status == "passed"


def answered_by_rule(path, passages):
    """Runs of an application that reads these passages, and answers what the first of them states."""
    read = [{"id": one.id, "text": one.text, "metadata": one.metadata} for one in passages]
    run = {
        "id": "r1",
        "question": QUESTION,
        "references": ["Ursula Almberg"],
        "answer": passages[0].text.partition(" founded")[0],
        "steps": [{"query": QUESTION, "passages": read}],
    }
    Path(path).write_text(json.dumps(run))


def test_a_run_that_nano_scored_is_a_case_that_fails_again_and_passes_after_the_fix():
    """The commands of a user, one behind the other: nothing here is scored by hand."""
    for name, passages in (("first", [LIE, TRUE]), ("again", [LIE, TRUE]), ("mended", [TRUE])):
        answered_by_rule(f"{name}.jsonl", passages)
        ragguard("score", f"{name}.jsonl", "-e", "nano", "--store", f"{name}.db")
    assert "1 contested" in ragguard("report", "first.db").output
    done = ragguard("cases", "first.db", "--cause", "contested", "--out", "found.jsonl")
    assert "1 new case in found.jsonl" in done.output
    (case,) = read_cases("found.jsonl")
    assert ([one.text for one in case.must_find], [one.text for one in case.must_not_read]) == (
        [TRUE.text],
        [LIE.text],
    )
    said = ragguard("compare", "first.db", "again.db", "--cases", "found.jsonl", code=1).output
    assert "1 failed" in said
    assert "old.md was read, which misled it; it answered 'Greta Sandell', not 'Ursula Almberg'" in said
    done = ragguard("compare", "first.db", "mended.db", "--cases", "found.jsonl")
    assert "Regression cases: 1 passed" in done.output
