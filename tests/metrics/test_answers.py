"""Answers beside references, answers that are none, and how probable a reference is as an answer."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import metrics as m
from ragguard.errors import InvalidInput
from ragguard.metrics import likelihood, likelihood_total, mean_logprob
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
    assert m.is_abstention("Empty Response", GERMAN), "LlamaIndex's answer if nothing was retrieved"
    assert not m.is_abstention("Empty response bodies", GERMAN)


HALVES = [math.log(0.5), math.log(0.5)]
QUARTER = [math.log(0.25)]


def test_likelihood_is_the_geometric_mean_over_tokens_of_the_best_reference():
    assert likelihood([HALVES]) == pytest.approx(0.5)
    assert likelihood([HALVES, QUARTER]) == pytest.approx(0.5)
    assert likelihood([[0.0]]) == 1.0


def test_total_is_the_sum_of_the_probabilities_of_whole_texts_with_their_ends():
    assert likelihood_total([HALVES], [0.0]) == pytest.approx(0.25)
    assert likelihood_total([HALVES, QUARTER], [0.0, math.log(0.5)]) == pytest.approx(0.375)
    # A reader that always says "New York Times" does not say "New York".
    assert likelihood_total([[math.log(0.98)]], [math.log(1e-4)]) < 1e-3
    with pytest.raises(InvalidInput, match="ends"):
        likelihood_total([HALVES], [])


def test_total_without_known_ends_is_an_upper_bound_that_adds_no_texts_which_may_begin_alike():
    assert likelihood_total([HALVES]) == pytest.approx(0.25)
    assert likelihood_total([HALVES, HALVES]) == pytest.approx(0.25)
    assert likelihood_total([HALVES, QUARTER], [None, 0.0]) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0) | st.none()), min_size=1, max_size=6))
def test_another_reference_never_lowers_the_total(texts):
    logprobs, ends = [[text] for text, _ in texts], [end for _, end in texts]
    totals = [likelihood_total(logprobs[:n], ends[:n]) for n in range(1, len(texts) + 1)]
    assert totals == sorted(totals)
    assert totals[-1] <= 1


@pytest.mark.parametrize("function", [likelihood, likelihood_total, mean_logprob])
def test_no_reference_has_no_likelihood_and_wrong_numbers_are_refused(function):
    assert math.isnan(function([]))
    for wrong in ([[0.5]], [[]], [[math.nan]], [["a"]]):
        with pytest.raises(InvalidInput, match="logprobs"):
            function(wrong)
