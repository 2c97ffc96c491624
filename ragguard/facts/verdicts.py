"""Verdicts by number and error: what a passage did to the model that read it, and whether a change of belief is clear.

The one place of these rules: every report, the page, the advice and the telemetry say these words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ragguard.text.numbers import as_shown

Verdict = Literal["helps", "misleads", "unclear", "does little"]
Tone = Literal["good", "bad", "doubtful", ""]
"""How a verdict is coloured; empty: neither good nor bad."""
CLEAR = 0.2
"""A utility has to exceed this in size to be called help or harm."""
MISLEADS = -CLEAR
"""A passage with a lower utility misleads. The guard drops it by default."""
BRINGS = 0.5
"""The probability of bringing the answer from which a passage without a utility helps."""
STATES_WRONG = "wrong answer"
"""The verdict on a passage in which the answer of a wrong run stands."""
LED_ASTRAY = "led astray"
"""The verdict on a passage that led a later hop to the one with the wrong answer."""
STATES_REFERENCE = "misleads? has the reference"
"""The verdict on a passage that the model got and that misleads by its utility, though a reference stands in it."""
_ERRORS = 2
"""How many standard errors a difference must exceed to count as one."""
WORTH_NAMING = 0.05
"""The least change of belief that is said of a hop, however small its error: a likelihood has none."""
_WOULD: dict[Verdict, str] = {
    "helps": "would help",
    "misleads": "would mislead",
    "unclear": "unclear",
    "does little": "would do little",
}


def is_clear(value: float, stderr: float | None) -> bool:
    """Returns whether a value is at least two standard errors away from zero."""
    return abs(value) >= _ERRORS * (stderr or 0.0)


def utility_verdict(utility: float, stderr: float | None = None) -> Verdict:
    """Returns what a passage does to the model that reads it, by its utility.

    Args:
        utility: The utility, from -1 to 1.
        stderr: Its standard error; None where it is not known.
    """
    if abs(utility) <= CLEAR:
        return "does little"
    if not is_clear(utility, stderr):
        return "unclear"
    return "helps" if utility > 0 else "misleads"


def tone_of(verdict: Verdict) -> Tone:
    """Returns the colour of a verdict."""
    return "good" if verdict == "helps" else "bad" if verdict == "misleads" else ""


class PassageVerdict(NamedTuple):
    """The words about a passage in its run."""

    did: str = ""
    """The verdict by its utility, or the words for an unread passage; empty where it was not judged."""
    fate: str = ""
    """The reason why the model did not read it; empty where it did."""
    tone: Tone = ""

    @property
    def words(self) -> str:
        """The whole in one line."""
        return "; ".join(filter(None, (self.did, self.fate)))


def passage_verdict(
    verdict: Verdict | None,
    *,
    read: bool = True,
    dropped: str | None = None,
    read_as: int = 0,
    states_wrong: bool = False,
    led_astray: bool = False,
    states_reference: bool = False,
) -> PassageVerdict:
    """Returns the words about a passage.

    Args:
        verdict: By its utility; None where that is not known.
        read: Whether the model got it.
        dropped: The guard's reason, if a guard dropped it.
        read_as: The rank under which the model read it in other words; 0 for none.
        states_wrong: Whether the wrong answer of a wrong run stands in it.
        led_astray: Whether it is to blame for that answer without stating it.
        states_reference: Whether it was read and a reference stands in it.
    """
    fate = "" if read else "not read"
    if dropped is not None:
        fate = f"dropped: {dropped}" if dropped else "dropped"
    elif read_as:
        fate = f"read as {read_as}"
    if states_wrong:
        return PassageVerdict(STATES_WRONG, fate, "bad")
    if led_astray:
        return PassageVerdict(LED_ASTRAY, fate, "bad")
    if verdict is None:
        return PassageVerdict("", fate)
    if fate:
        return PassageVerdict(_WOULD[verdict], fate)
    if verdict == "misleads" and states_reference:
        return PassageVerdict(STATES_REFERENCE, "", "doubtful")
    return PassageVerdict(verdict, "", tone_of(verdict))


@dataclass(frozen=True, slots=True)
class BeliefGain:
    """A difference of belief with its standard error; None where the error is not known."""

    value: float
    stderr: float | None

    @property
    def significant(self) -> bool:
        """True where the difference exceeds two standard errors and does not round to zero."""
        return abs(self.value) >= 0.005 and is_clear(self.value, self.stderr)

    @property
    def worth_naming(self) -> bool:
        """True if a hop may be said to have done it: 0.05 at least, and two standard errors."""
        return abs(self.value) >= WORTH_NAMING and is_clear(self.value, self.stderr)

    @property
    def tone(self) -> Tone:
        """The colour of the difference: none where it is not significant."""
        return ("good" if self.value > 0 else "bad") if self.significant else ""

    def __str__(self) -> str:
        error = "" if self.stderr is None else f" ± {as_shown(self.stderr):.2f}"
        return f"{as_shown(self.value):+z.2f}{error}"
