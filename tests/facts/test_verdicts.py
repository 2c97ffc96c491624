"""The verdict of a passage: one threshold and one rule for errors, for reports, the page, the advice and the guard."""

from __future__ import annotations

import inspect

import pytest

from ragguard import DistractorGuard
from ragguard.facts.verdicts import MISLEADS, BeliefGain, passage_verdict, utility_verdict
from ragguard.guard.policies import UtilityThreshold


@pytest.mark.parametrize(
    ("utility", "stderr", "verdict"),
    [(0.21, None, "helps"), (-0.21, None, "misleads"), (0.2, None, "does little"), (-0.2, 0.0, "does little"),
     (0.3, 0.16, "unclear"), (-0.3, 0.16, "unclear"), (-0.3, 0.15, "misleads"), (0.1, 0.4, "does little")],
)  # fmt: skip
def test_a_utility_has_to_be_large_and_two_errors_from_zero(utility, stderr, verdict):
    assert utility_verdict(utility, stderr) == verdict


@pytest.mark.parametrize(
    ("verdict", "facts", "words", "tone"),
    [
        ("misleads", {}, "misleads", "bad"),
        ("misleads", {"states_reference": True}, "misleads? has the reference", "doubtful"),
        ("helps", {"states_wrong": True}, "wrong answer", "bad"),
        ("helps", {"led_astray": True}, "led astray", "bad"),
        ("misleads", {"read": False, "dropped": "utility -0.80 < -0.20"},
         "would mislead; dropped: utility -0.80 < -0.20", ""),
        ("helps", {"read": False}, "would help; not read", ""),
        ("does little", {"read": False, "read_as": 6}, "would do little; read as 6", ""),
        (None, {"read": False}, "not read", ""),
        (None, {}, "", ""),
    ],
)  # fmt: skip
def test_the_words_say_what_it_did_and_why_it_was_not_read(verdict, facts, words, tone):
    found = passage_verdict(verdict, **facts)
    assert (found.words, found.tone) == (words, tone)


@pytest.mark.parametrize(
    ("value", "stderr", "tone"), [(0.3, 0.1, "good"), (-0.3, 0.1, "bad"), (0.3, 0.2, ""), (0.004, None, "")]
)
def test_a_change_of_belief_has_a_tone_if_it_is_significant(value, stderr, tone):
    assert BeliefGain(value, stderr).tone == tone


def test_guards_drop_by_default_what_is_said_to_mislead():
    for owner in (DistractorGuard, UtilityThreshold):
        assert inspect.signature(owner).parameters["threshold"].default == MISLEADS
