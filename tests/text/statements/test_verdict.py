"""Right by words alone, as people judge: what is right, what is wrong, and what words do not decide."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.errors import InvalidInput
from ragguard.metrics import right_by_words
from studies.readers.evouna import read
from studies.real.answers import answer_table

RIGHT = [
    ("The bridge was opened on 18 May 1932.", "May 18, 1932"),
    ("They sold 1,200 boats.", "1200"),
    ("It was the seventh one.", "7th"),
    ("It is Ada Berg's mill.", "Ada Berg"),
    ("Berg, Ada", "Ada Berg"),
    ("José Peña wrote it.", "Jose Pena"),
    ("King Harald VII", "Harald 7"),
    ("It was founded in 1902 by Ada Berg, a smith, who sold it to Bo Lund.", "Ada Berg"),
    ("It was Ada Maria Berg.", "Ada Berg"),
    ("Berg", "Doctor Berg"),
    ("24 km", "24 kilometres"),
    ("In the U.S.A.", "USA"),
    ("two weeks", "14 days"),
    ("It opens at 14:00.", "2 pm"),
    ("It opens at 2 p.m.", "14:00"),
    ("The film lasts 1.5 hours.", "90 minutes"),
    ("3 hours and 48 minutes", "228 minutes"),
    ("It cost 1,200,000 dollars.", "$1.2 million"),
    ("$1.2 million", "1,200,000 dollars"),
    ("It is minus 5 degrees.", "-5 °C"),
    ("It is -5 °C.", "minus 5 degrees"),
    ("23 °F", "-5 °C"),
    ("It weighs 1900 g.", "1.9 kg"),
    ("No, not in winter.", "No"),
    ("I Don't Know How to Love Him", "I Don't Know How to Love Him"),
]
WRONG = [
    ("Bo Lund", "Ada Berg"), ("in 1946", "1945"), ("170", "70"), ("-5", "5"), ("C++", "C"),
    ("15 million", "1.5 million"),
    ("80 minutes", "90 minutes"), ("$1.5 million", "$1.2 million"), ("3 pm", "2 pm"), ("No.", "Yes"),
    ("I do not know.", "Ada Berg"),
]  # fmt: skip
UNDECIDED = [
    ("It was not Ada Berg.", "Ada Berg"),
    ("Ada Berg or Bo Lund", "Ada Berg"),
    ("Ada Berg and Bo Lund", "Ada Berg"),
    ("Ada", "Ada Berg and Bo Lund"),
    ("the old mill by the river", "a mill beside the water"),
    ("in the late 18th century", "1780"),
    ("Yes, in aisle 3. No delivery.", "No"),
    ("It rained all day; no sun.", "No"),
    ("It is open daily.", "Yes"),
    ("Unfortunately Tom Arl won, although Lea Simm led.", "Lea Simm"),
    ("It was 30 km/h until 2019 and is 50 km/h now.", "30 km/h"),
    ("I don't know who won, but Lea Simm took part.", "Lea Simm"),
    ("Either Lea Simm or Tom Arl; the sources disagree.", "Lea Simm"),
    ("about 2 hours", "90 minutes"),
    ("30 days", "Within one month"),
    ("2:00", "2 pm"),
    ("5 km", "5 km/h"),
]


@pytest.mark.parametrize(("cases", "verdict"), [(RIGHT, True), (WRONG, False), (UNDECIDED, None)])
def test_words_decide_as_people_do(cases, verdict):
    assert {
        (answer, reference): right_by_words(answer, reference) for answer, reference in cases
    } == dict.fromkeys(cases, verdict)


def test_words_that_the_question_has_decide_nothing():
    question = "Which of the rivers, Glomma or Lågen, is longer?"
    assert right_by_words("Between Glomma and Lågen there is a hill.", ["Glomma"], question) is None
    assert right_by_words("Glomma", ["Glomma"], question) is True


def test_one_of_several_references_is_enough():
    assert right_by_words("It was Berg & Sons.", ["Norvik Mills", "Berg and Sons"]) is True
    assert right_by_words("It was Lund.", []) is None


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=3), st.text(max_size=30))
def test_any_texts_have_a_verdict(answer, references, question):
    assert right_by_words(answer, references, question) in (True, False, None)


@given(st.from_regex(r"[A-Z][a-z]{2,8} [A-Z][a-z]{2,8}", fullmatch=True))
def test_a_name_in_a_sentence_is_right(name):
    assert (
        right_by_words(f"The mill was built in that year by {name}, as the records of the town say.", [name])
        is True
    )


def test_an_answer_that_is_no_text_is_refused():
    with pytest.raises(InvalidInput, match="answer"):
        right_by_words(3, ["3"])


def test_the_study_counts_what_people_judged(tmp_path):
    rows = [
        {"question": "Who built it?", "golden_answer": "Ada Berg/A. Berg", "answer_fid": "Ada Berg", "judge_fid": True,
         "answer_gpt4": "Bo Lund built it.", "judge_gpt4": False, "answer_gpt35": "Berg or Lund", "judge_gpt35": None},
        {"question": "When?", "golden_answer": "1902", "answer_fid": "1903", "judge_fid": True, "improper": True},
    ]  # fmt: skip
    path = tmp_path / "evouna_x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = list(read(path))
    assert [(one.system, one.right) for one in answers] == [("fid", True), ("gpt4", False)]
    every, *_ = answer_table({"x": answers}, seed=0).rows
    assert every == ("x: right_by_words", 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 2)
