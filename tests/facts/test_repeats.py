"""A hop that asks again what an earlier one asked is named."""

import pytest

from ragguard.facts.repeats import repeats
from ragguard.records import RetrievalStep


def of(*queries):
    return repeats([RetrievalStep(query=query) for query in queries])


def test_the_same_query_is_named_with_the_first_hop_that_had_it():
    found = of(
        "Who founded Nordvik?", "Where was Ada Berg born?", "who founded nordvik", "Who founded Nordvik?"
    )
    assert [(one.hop, one.earlier, one.exact) for one in found] == [(3, 1, True), (4, 1, True)]
    assert str(found[0]) == "hop 3 asked the same as hop 1"


@pytest.mark.parametrize(
    ("query", "again"),
    [
        ("the founder of Nordvik", "Who is Nordvik's founder?"),
        ("population Oslo 2010", "Oslo population in 2010"),
    ],
)
def test_other_words_around_the_same_content_are_nearly_the_same(query, again):
    (found,) = of(query, again)
    assert str(found) == "hop 2 asked nearly the same as hop 1"


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("population of Oslo in 2010", "population of Oslo in 2020"),
        ("mother of Ada Berg", "father of Ada Berg"),
        ("Who founded Nordvik?", "Who founded Sundvik?"),
        ("", ""),
        ("who is it", "what was that"),
    ],
)
def test_another_question_is_no_repeat(query, other):
    assert of(query, other) == []
