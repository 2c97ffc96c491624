"""BLEU and the matching of word vectors, on answers whose value is known by hand."""

import math

import pytest

from studies.overlap import bleu, matched


def test_bleu_of_a_short_answer_counts_the_runs_it_has():
    assert bleu("Pia Nordberg.", ["Olga Forsblad", "Pia Nordberg"]) == pytest.approx(1)
    assert bleu("Pia", ["Pia Nordberg"]) == pytest.approx(math.exp(1 - 2))  # right words, half as long
    assert bleu("Nordberg Pia", ["Pia Nordberg"]) == pytest.approx(math.sqrt(0.5))  # smoothed: no run of two
    assert bleu("Olga Forsblad", ["Pia Nordberg"]) == bleu("", ["Pia Nordberg"]) == 0


def test_words_match_by_their_vectors_and_the_best_reference_counts():
    assert matched("Pia Nordberg", ["Olga Forsblad", "Pia Nordberg"]) == pytest.approx(1)
    half, other = matched("Pia Forsblad", ["Pia Nordberg"]), matched("lemons", ["Pia Nordberg"])
    assert other < half < 1
    assert matched("", ["Pia Nordberg"]) == matched("Pia", []) == 0
