"""An answer that only repeats its question answers nothing."""

import pytest

from ragguard.text.statements.repetition import repeats_question


@pytest.mark.parametrize(
    ("question", "answer", "repeats"),
    [
        ("Which members get the discount?", "The discount applies to members.", True),
        ("When is the boat house locked?", "The boat house is locked.", True),
        ("When is the boat house locked?", "The boat house is locked at nine.", False),
        ("Who has to sign the log book?", "The skipper has to sign the log book.", False),
        ("Which one is longer, Glomma or Lågen?", "Glomma", False),
        ("学校由谁建立?", "王明", False),
    ],
)
def test_an_answer_repeats_its_question(question, answer, repeats):
    assert repeats_question(answer, question) is repeats
