"""Passages with the same words around other ones in the place of a reference contradict it."""

from ragguard.facts.contradictions import contradictions

QUESTION = "When was the old mill of Norvik built?"
TRUE = "The old mill of Norvik was built in 1922 by Ada Berg, who ran it for ten years."
FALSE = "Some say that the old mill of Norvik was built in 1951 by Ada Berg, who ran it for ten years."
OTHER = "The town hall of Velara was built in 1870 by a council of nine people."


def test_other_words_in_the_place_of_a_reference_are_named():
    (found,) = contradictions(QUESTION, ["1922"], [TRUE, FALSE, OTHER])
    assert (found.first_answer, found.second_answer) == ("1922", "1951")
    assert (found.first, found.second) == (TRUE, FALSE)


def test_nothing_is_named_without_a_passage_that_has_the_reference():
    assert contradictions(QUESTION, ["1922"], [FALSE, OTHER]) == []
    assert contradictions(QUESTION, ["192"], [TRUE, FALSE]) == []
    assert contradictions(QUESTION, [], [TRUE, FALSE]) == []
    assert contradictions(QUESTION, ["1922"], [TRUE, TRUE, OTHER, ""]) == []


def test_words_of_another_kind_do_not_contradict_a_figure():
    vague = TRUE.replace("1922", "the early days")
    assert contradictions(QUESTION, ["1922"], [TRUE, vague]) == []
    words = TRUE.replace("Ada Berg", "Carl Dahl")
    (found,) = contradictions("Who built it?", ["Ada Berg"], [TRUE, words])
    assert found.second_answer == "carl dahl"


def test_a_part_of_a_reference_is_no_contradiction_of_it():
    true = "The mill of Norvik was sold to Ada Berg on 10 August 1966, after a long dispute."
    part = "The mill of Norvik was sold to Ada Berg on 10 August, after a long dispute."
    question = "When was the mill of Norvik sold?"
    assert contradictions(question, ["10 August 1966"], [true, part]) == []
    other = part.replace("10 August", "3 May")
    (found,) = contradictions(question, ["10 August 1966"], [true, part, other])
    assert found.second_answer.startswith("3 may")
