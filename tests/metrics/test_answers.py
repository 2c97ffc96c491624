"""Answers beside references, and answers that are none."""

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import metrics as m
from ragguard.text.language import meaning_key

WORDS = st.lists(st.sampled_from("red green blue the 1922 Oslo".split()), max_size=8).map(" ".join)
GERMAN = m.Language(articles=("der", "die", "das"), abstentions=("ich weiß nicht",), turns=("aber",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat, sat!", "cat sat"),
        ("Ada\u00a0Berg\n", "ada berg"),
        ("ﬁrm Ａ１", "firm a1"),
        ("STRASSE straße", "strasse strasse"),
        ("«L'été»", "lété"),
        ("U.S.A.", "usa"),
        ("A", "a"),
        ("the", "the"),
        ("?!", "?!"),
        ("", ""),
        ("  ", ""),
        ("c:\u0327", "ç"),
    ],
)
def test_normalise(text, expected):
    assert m.normalise(text) == expected


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    once = m.normalise(text)
    assert m.normalise(once) == once


def test_the_default_language_is_named_and_not_written_out():
    assert repr(m.ENGLISH) == "ENGLISH"
    assert len(str(inspect.signature(m.token_f1))) < 200
    assert repr(GERMAN).startswith("Language(articles=('der', 'die', 'das'), abstentions=")
    assert "blanks" not in repr(GERMAN)


def test_exact_match():
    assert m.exact_match("the Oslo!", "Oslo") == 1
    assert m.exact_match("Oslo", ["Bergen", "oslo"]) == 1
    assert m.exact_match("Oslo", "Bergen") == 0
    assert m.exact_match("A", "The") == 0


def test_token_f1():
    assert m.token_f1("red green", "green blue") == pytest.approx(0.5)
    assert m.token_f1("red red", "red") == pytest.approx(2 / 3)
    assert m.token_f1("red", ["blue", "red green"]) == pytest.approx(2 / 3)
    assert m.token_f1("", "red") == 0
    assert m.token_f1("", "") == 1


def test_rouge_l():
    assert m.rouge_l("police killed gunman", "police kill gunman") == pytest.approx(2 / 3)
    assert m.rouge_l("gunman killed police", "police kill gunman") == pytest.approx(1 / 3)
    assert m.rouge_l("one two three four five", "two nine four") == pytest.approx(2 * 2 / 8)
    assert m.rouge_l("red", ["blue", "red"]) == 1
    assert m.rouge_l("", "red") == 0


def longest_common(ours, theirs):
    if not ours or not theirs:
        return 0
    if ours[0] == theirs[0]:
        return 1 + longest_common(ours[1:], theirs[1:])
    return max(longest_common(ours[1:], theirs), longest_common(ours, theirs[1:]))


@given(WORDS, WORDS)
def test_rouge_l_is_the_longest_common_subsequence(answer, reference):
    ours, theirs = m.normalise(answer).split(), m.normalise(reference).split()
    if ours or theirs:
        expected = 2 * longest_common(ours, theirs) / (len(ours) + len(theirs))
        assert m.rouge_l(answer, reference) == pytest.approx(expected)


@given(WORDS, WORDS)
def test_each_is_at_most_the_looser_one(answer, reference):
    exact, common, shared = (f(answer, reference) for f in (m.exact_match, m.rouge_l, m.token_f1))
    assert 0 <= exact <= common <= shared <= 1
    assert shared == m.token_f1(reference, answer)
    assert m.exact_match(answer, answer) == m.token_f1(answer, answer) == m.rouge_l(answer, answer) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada Berg", "the ada berg."), ("“Ada Berg”.", "Ada Berg"), ("Don't", "don’t"), ("−5", "-5"), ("１２", "12"),
        ("It was 1945.", "it was 1945"), ("Oslo, Norway!", "oslo norway"), ("東京。", "東京"), ("(Oslo)", "Oslo"),
        ("- Oslo", "Oslo"), ("A", "a"), ("...", "..."),
    ],
)  # fmt: skip
def test_answers_that_mean_the_same_without_doubt_have_one_key(one, other):
    assert meaning_key(one) == meaning_key(other)


@given(st.text("0123456789.,:-+%$/() ", max_size=8), st.text("0123456789.,:-+%$/() ", max_size=8))
def test_texts_of_one_key_have_the_same_digits_in_the_same_groups(one, other):
    if meaning_key(one) == meaning_key(other):
        assert re.findall("[0-9]+", one) == re.findall("[0-9]+", other)


@given(st.text())
def test_every_text_has_a_key(text):
    assert meaning_key(text) == meaning_key(f" {text}\n")


def test_another_language_is_declared():
    assert m.normalise("Die Stadt", GERMAN) == "stadt"
    assert m.normalise("Die Stadt") == "die stadt"
    assert m.exact_match("Das Oslo", "Oslo", GERMAN) == 1
    assert m.is_abstention("Ich weiß nicht.", GERMAN)
    assert not m.is_abstention("Ich weiß nicht, aber es war Oslo.", GERMAN)
    assert not m.is_abstention("Ich weiß nicht.")
    assert m.is_abstention("", m.Language())
    assert m.is_abstention("NO-RESPONSE", GERMAN), "the prompts ask for this word in every language"
    assert m.is_abstention("No response.", m.Language())
    assert not m.is_abstention("NO-RESPONSE, aber es war Oslo.", GERMAN)
    assert not m.is_abstention("Oslo", m.Language())
