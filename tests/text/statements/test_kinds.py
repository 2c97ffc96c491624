"""The kind of answer that a question asks for, and texts that have one."""

import pytest

from ragguard.text.statements.kinds import counted_things, kind_asked, subject_of


@pytest.mark.parametrize(
    ("question", "kind", "answer", "other"),
    [
        ("How many boats are there?", "number", "There are fourteen boats.", "There are boats."),
        ("How often is it open?", "number", "It is open daily.", "It is open."),
        ("When was it built?", "date", "It was built on a Tuesday in 1902.", "It was built by Ada Berg."),
        ("In which year was it built?", "date", "In 1902.", "It was built."),
        ("Who built it?", "name", "It was Ada Berg.", "It was a smith."),
    ],
)
def test_a_question_asks_for_a_kind_of_answer(question, kind, answer, other):
    asked = kind_asked(question)
    assert asked.name == kind
    assert asked.form.search(answer)
    assert not asked.form.search(other)


def test_a_question_without_a_kind_may_have_any_answer():
    assert kind_asked("Why is it closed?") is None


def test_words_that_only_ask_are_no_subject():
    assert subject_of("How many boats are there?").split() == ["boats", "are", "there?"]
    assert subject_of("Which one applies?").split() == ["applies?"]
    assert counted_things("How many paying members are there?") == "paying members"
    assert counted_things("Why?") == ""
