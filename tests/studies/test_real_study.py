"""The study of real data sets: files that are broken, missing or odd, and the tables that need no model."""

import json

import pytest
from support.examinee import examinee
from support.rows import rows_of

from ragguard.engines.nano.nano_engine import NanoEngine
from ragguard.errors import InvalidInput
from ragguard.lab.validation.contexts import silent
from studies.intervals import share_over_questions
from studies.real.answers import answer_table
from studies.real.forms import forms_table, found_passages
from studies.real.hops import hop_table
from studies.real.labels import Grades, label_table
from studies.real.made import write_sets
from studies.real.passages import (
    COMPOSITIONS,
    MOST,
    contested_table,
    contexts_of,
    passage_table,
    shuffled,
    usable,
    words_rows,
)
from studies.real.sets import READERS, read_sets


@pytest.fixture
def folder(tmp_path):
    write_sets(tmp_path, 6, seed=0)
    return tmp_path


def mixed(*documents, gold=("Oslo",)):
    listed = [{"text": text, "type": kind} for text, kind in documents]
    return {"question": "Where is the mill?", "documents": listed, "gold_answers": list(gold)}


def read_mixed(folder, *entries):
    (folder / "ramdocs.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return read_sets(folder)


def test_every_file_is_read_in_the_form_of_its_authors(folder):
    sets = read_sets(folder)
    assert {name: len(items) for name, items in sets.items.items()} == dict.fromkeys(READERS, 6) | {
        "evouna_nq": 30, "evouna_tq": 30,
    }  # fmt: skip
    assert len(sets.grades.people) == 1000
    assert not sets.remarks
    assert sets.items["clapnq_answerable"][0].selected == {1}
    assert [one.answerable for one in sets.items["mtragun"][:2]] == [True, False]


def test_a_broken_file_counts_up_to_its_fault_and_a_missing_one_is_said(tmp_path):
    good = mixed(("In Oslo.", "correct"), ("In Bergen.", "misinfo"))
    sets = read_mixed(tmp_path, good, good, {"question": "Who?"}, good)
    assert len(sets.items["ramdocs"]) == 2
    assert any("read up to entry 2" in remark and "line 3, documents" in remark for remark in sets.remarks)
    assert "musique.jsonl is not there." in sets.table().notes
    for fault in ({"type": "true"}, {"type": None}, {"text": 3.5}):
        wrong = good | {"documents": [{"text": "In Oslo.", "type": "correct"} | fault]}
        with pytest.raises(InvalidInput, match=r"--data.*ramdocs\.jsonl"):
            read_mixed(tmp_path, wrong)


def test_a_folder_of_something_else_is_one_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InvalidInput, match=r"a folder with one of ramdocs\.jsonl, musique\.jsonl"):
        read_sets(tmp_path)


def test_questions_without_gold_or_a_true_passage_are_left_out_and_equal_documents_count_once(tmp_path):
    true, false = ("In Oslo.", "correct"), ("In Bergen.", "misinfo")
    questions = read_mixed(
        tmp_path, mixed(true, false, true), mixed(true, false, gold=()), mixed(false), mixed(true)
    ).items["ramdocs"]
    assert [len(one.documents) for one in questions] == [2, 2, 1, 1]
    assert usable(questions) == questions[:1]
    broken = read_mixed(tmp_path, mixed(true, false), mixed(true, ("In Oslo.", "noise")))
    assert any("correct, as the same text has before" in remark for remark in broken.remarks)
    many = read_mixed(tmp_path, mixed(true, *((f"Text {at}.", "noise") for at in range(10_000)))).items[
        "ramdocs"
    ]
    assert len(shuffled(many[0], seed=0)) == MOST
    assert (
        rows_of(passage_table(words_rows(many), [], seed=0))["a reference stands in it"]["over useless: AUC"]
        == 1
    )


def test_words_tell_true_passages_and_contradictions_of_the_world(folder):
    sets = read_sets(folder)
    questions = sets.items["ramdocs"]
    table = rows_of(passage_table(words_rows(questions), [], seed=0))
    assert table["a reference stands in it"]["over false: AUC"] == 1.0
    assert table["a reference stands in it"]["questions"] == 6
    shown = rows_of(contested_table(questions, {"MuSiQue": sets.items["musique"]}, seed=0))
    assert shown["first half: a false passage is there and named"]["questions "] == 3
    assert 0 <= shown["second half: a false passage is there and named"]["share"] <= 1
    assert shown["first half: no passage is false, one is named"]["share"] is None
    assert shown["MuSiQue: no passage is false, one is named"]["questions "] == 6


def test_contexts_hold_none_one_or_two_true_passages(folder):
    contexts = contexts_of(read_sets(folder).items["ramdocs"][0], seed=0)
    assert (
        len({tuple(p.text for p in one.passages) for one in contexts}) == len(contexts) <= len(COMPOSITIONS)
    )
    assert {sum(one.relevance) for one in contexts} == {0.0, 1.0}  # the world's cases have one true passage
    assert all(len(one.passages) == len(one.relevance) for one in contexts)


def test_the_last_hop_holds_the_answer_and_the_first_does_not(folder):
    sets = read_sets(folder)
    row = rows_of(hop_table({"MuSiQue": sets.items["musique"]}, seed=0))["MuSiQue: answer_in_context"]
    assert (row["first hop: AUC"], row["last hop: AUC"], row["questions"]) == (0.5, 1.0, 6)


def test_rules_about_answers_stand_beside_people(folder):
    table = rows_of(answer_table({"NQ": read_sets(folder).items["evouna_nq"]}, seed=0))
    assert table["NQ: exact match"]["agreement"] == 1.0
    assert table["NQ: right_by_words"]["wrong of called right"] == 0.0
    assert table["NQ: right_by_words"]["decided"] < 1.0


def test_labels_correct_a_model_that_grades_too_high(folder):
    table = rows_of(label_table(read_sets(folder).grades, 12, (30,), 0, lambda *_: None))
    row = table["the model: mean grade, 1 to 5"]
    assert row["by the judge"] > row["by people"] + 0.5
    assert row["interval holds"] >= 0.75
    assert table["one grade for all: share relevant"]["width"] > row["width"] / 4
    same = Grades({"a": {"x": 1.0, "y": 2.0}}, {"a": {"x": 3.0}})
    assert same.people.tolist() == [1.0]


def test_a_share_s_interval_draws_whole_questions():
    share, low, high = share_over_questions([1, 1, 0, 0], [1, 1, 1, 1], ["a", "a", "b", "b"], seed=0)
    assert (share, low, high) == (0.5, 0.0, 1.0)
    assert share_over_questions([], [], [], seed=0) == [None] * 3


async def test_a_model_that_knows_the_answers_tells_passages_by_each_of_its_own_forms():
    shown = rows_of(await forms_table(examinee(), [], 2, 0, silent))
    own = {form: row["examination: AUC"] for form, row in shown.items() if "own prompts" in form}
    assert len(own) == 7
    assert own == pytest.approx(dict.fromkeys(own, 1.0))
    assert (await forms_table(NanoEngine(), [], 2, 0, silent)).rows == ()


def test_each_question_gives_one_passage_that_answers_and_one_that_does_not(tmp_path):
    true, useless = ("In Oslo.", "correct"), ("A mill.", "noise")
    questions = read_mixed(tmp_path, mixed(true, useless, ("A river.", "noise")), mixed(true)).items[
        "ramdocs"
    ]
    assert [(one.passage, one.answers) for one in found_passages(questions)] == [
        ("In Oslo.", True),
        ("A mill.", False),
    ]
