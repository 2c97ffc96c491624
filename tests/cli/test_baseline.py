"""Named baselines: set, listed, compared, refused where they mean nothing; the comment; the questions that fell."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from support.commands import ragguard, refusal
from support.compared import side
from support.stored import scored_store

from ragguard.storage.sqlite.store import Store


def seen(runs, prefix="", text="passage {}"):
    """The runs under ids of their own, each with a passage."""
    for number, one in enumerate(runs):
        one.run.id = f"{prefix}{one.run.id}"
        for step in one.run.steps:
            step.run_id = one.run.id
            step.passages = [replace(step.passages[0], text=text.format(number))]
        one.scores = [replace(score, run_id=one.run.id) for score in one.scores]
    return runs


def test_later_runs_of_a_store_are_compared_with_its_baseline(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    assert "has no baseline" in ragguard("baseline", store).output
    assert ragguard("baseline", store, "main").output.startswith("main  20")
    assert "none since its last baseline" in ragguard("compare", store, "--baseline", "main").output
    scored_store(store, seen(side(-0.05, 1), "later-"))
    gate = "compare", store, "--baseline", "main", "--fail-if", "udcg < -0.02"
    done = ragguard(*gate, code=1)
    assert "raises a false alarm in one of 20 runs; --looks 30" in " ".join(done.output.split())
    assert "false alarm" not in ragguard(*gate, "--looks", "30", code=1).output
    assert "The baseline main is of 20" in done.output
    assert "40 runs, documents " in done.output
    assert ", over 40 questions. " in done.output
    ragguard("baseline", store, "next", code=0)
    assert [line.split()[0] for line in ragguard("baseline", store).output.splitlines()] == ["main", "next"]


def test_another_store_is_compared_with_the_baseline_alone(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    scored_store(store, seen(side(0.3, 1), "later-"))  # not of the baseline
    other = scored_store(tmp_path / "b.db", seen(side(0.05, 2)))
    done = ragguard("compare", store, other, "--baseline", "main", "--json")
    (change,) = json.loads(done.output)["changes"]
    assert change["difference"] == pytest.approx(0.05, abs=0.02)


def test_other_documents_are_refused_and_mostly_other_ones_said(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    refused = ragguard(
        "compare",
        store,
        scored_store(tmp_path / "b.db", seen(side(0), text="other {}")),
        "--baseline",
        "main",
        code=2,
    )
    assert "no passage in common" in refused.output
    mixed = seen(side(0), text="other {}")
    mixed[0].run.steps[0].passages[0].text = "passage 0"
    said = " ".join(
        ragguard(
            "compare", store, scored_store(tmp_path / "c.db", mixed), "--baseline", "main"
        ).output.split()
    )
    assert "saw 40 passages, of which the other side saw 1: a difference may be that of the documents" in said


def test_baselines_that_are_not_there_any_more(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    other = scored_store(tmp_path / "b.db", seen(side(0)))
    unknown = ragguard("compare", store, other, "--baseline", "master")
    assert "master" in unknown.output
    assert "main" in unknown.output
    opened = Store(store)
    opened.delete(opened.run_ids()[0])
    opened.close()
    said = ragguard("compare", store, other, "--baseline", "main").output
    assert "1 of the 40 runs of the baseline main were deleted" in " ".join(said.split())
    assert "letters, digits" in ragguard("baseline", store, "a b").output
    ragguard("baseline", tmp_path / "none.db", "main", code=2)
    assert not (tmp_path / "none.db").exists()


def test_a_step_that_cannot_be_read_is_named_by_its_run(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE steps SET body = '{' WHERE run = (SELECT seq FROM runs WHERE id = 'r7')")
    connection.close()
    for words in (("compare", store, store), ("baseline", store, "main")):
        assert "the run 'r7'" in refusal(*words)


def test_comment_names_the_questions_that_fell_although_the_mean_did_not(tmp_path):
    after = side(0.05, 1)
    after[3].scores[0].value = 0.01
    hostile = "Is `@all` <img src=x> a | trap?"
    before = side(0)
    for runs in (before, after):
        runs[3].run.question = hostile
    a, b = scored_store(tmp_path / "a.db", before), scored_store(tmp_path / "b.db", after)
    done = ragguard("compare", a, b, "--markdown", tmp_path / "comment.md", "--fail-if", "udcg > 0 strict")
    shown = " ".join(done.output.split())
    assert "questions fell by 0.02 or more" in shown
    assert "→ 0.010" in shown
    text = (tmp_path / "comment.md").read_text()
    assert "of 40 questions fell by 0.02 or more</summary>" in text
    assert "- `Is '@all' <img src=x> a | trap?`: udcg" in text
    assert "- **FAILED: udcg > 0 strict; the difference is +0.0" in text
    noisy = side(0)
    for number, one in enumerate(noisy):
        one.scores[0].value += 0.01 * (-1) ** number
    ragguard(
        "compare",
        scored_store(tmp_path / "c.db", side(0)),
        scored_store(tmp_path / "d.db", noisy),
        "--markdown",
        tmp_path / "n.md",
    )
    assert "| not decisive |" in (tmp_path / "n.md").read_text()


def test_a_name_that_is_taken_moves_and_is_said_to(tmp_path):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    scored_store(store, seen(side(0), "later-"))
    said = ragguard("baseline", store, "main").output
    assert "main was the name of 40 earlier runs" in said
    assert len(ragguard("baseline", store).output.splitlines()) == 1


@pytest.mark.parametrize("words", [("baseline", "STORE", ""), ("compare", "STORE", "--baseline", ""),
                                   ("report", "STORE", "--run", "")])  # fmt: skip
def test_a_name_that_is_empty_or_missing_is_refused(tmp_path, words):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    refusal(*(store if word == "STORE" else word for word in words))
    assert "main" in ragguard("baseline", store).output


WRONG_TYPE = '{"name": "a", "at": "", "first": "x", "last": 1, "runs": 1, "documents": ""}'


@pytest.mark.parametrize("value", ["[" * 50_000, '{"name": 7}', "null", WRONG_TYPE])
def test_a_baseline_that_another_program_has_changed_is_named(tmp_path, value):
    store = scored_store(tmp_path / "a.db", seen(side(0)))
    ragguard("baseline", store, "main")
    with closing(sqlite3.connect(store)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'baseline:main'", (value,))
        db.commit()
    line = refusal("baseline", store)
    assert "the baseline 'main'" in line
    assert "cannot be read" in line
