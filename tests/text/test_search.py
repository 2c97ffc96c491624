"""Passages are found by their words: rare ones count for more, and forms of a word are one."""

import pytest

from ragguard.records import Passage
from ragguard.text.search import Search, stem, terms


def test_text_without_spaces_is_searched_by_character():
    passages = [Passage("東京は日本の首都です", "0"), Passage("お茶", "1")]
    assert [passage.id for passage in Search(passages)("首都", 3)] == ["0"]


def test_search_ranks_rare_words_above_common_ones_and_leaves_out_what_was_found():
    texts = ["tea tea cup", "cup cup", "tea in Assam", "milk"]
    passages = [Passage(text, str(at)) for at, text in enumerate(texts)]
    find = Search(passages)
    assert [passage.id for passage in find("assam tea", 2)] == ["2", "0"]
    assert [passage.id for passage in find("assam tea", 2, without=[passages[2]])] == ["0"]
    assert find("coffee", 2) == []


def test_name_of_the_file_is_searched_too():
    passages = [
        Passage("An adult pays 210 pounds.", "fees-2025.md#1"),
        Passage("An adult pays 180 pounds.", "fees-2023.md#1"),
    ]
    assert [passage.id for passage in Search(passages)("fees of 2023", 1)] == ["fees-2023.md#1"]


@pytest.mark.parametrize(
    "forms",
    [
        "keep keeps kept keeping",
        "leave leaves leaving",
        "founder founded",
        "teach taught",
        "city cities",
        "apply applies applied applying",
        "family families",
    ],
)
def test_forms_of_a_word_are_one_term(forms):
    assert len({stem(form) for form in forms.split()}) == 1


def test_characters_without_a_meaning_of_their_own_are_no_terms():
    assert terms("挪威的首都是哪一座") == ["挪", "威", "首", "都", "座"]


def test_numbers_stay_whole():
    assert terms("version 3.9 of 2,300") == ["vers", "3.9", "2,300"]
