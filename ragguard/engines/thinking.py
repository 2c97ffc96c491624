"""Models that think before they answer: how they are recognised, silenced, and read when they cannot be.

For such a model the first token is a thought's, not a label's. Templates have a switch, or an
empty thought stands in for one; where neither works, answers are sampled and the thought is cut off.
"""

from __future__ import annotations

from typing import NamedTuple

from ragguard.engines.base import Message, Prompt

SWITCH_OFF = {"enable_thinking": False, "thinking": False}
"""Chat-template arguments by which the common templates switch thinking off; others ignore them."""

QUESTION = Prompt(
    (
        Message(
            "user",
            "Which letter comes first in the alphabet?\nA: the letter A\nB: the letter B\n"
            "Reply with A or B and nothing else.",
        ),
    )
)
"""Asked once at first use: a model that answers at once puts its mass on the two letters."""
LETTERS = ("A", "B")


class Thought(NamedTuple):
    """How a family of models frames its thoughts."""

    opens: str
    closes: str
    empty: str
    """What, put before the answer, makes the model believe that it has thought."""


def _tagged(opens: str, closes: str) -> Thought:
    return Thought(opens, closes, f"{opens}\n\n{closes}\n\n")


THOUGHTS = (
    _tagged("<think>", "</think>"),
    _tagged("<thinking>", "</thinking>"),
    _tagged("<thought>", "</thought>"),
    _tagged("<reasoning>", "</reasoning>"),
    _tagged("<seed:think>", "</seed:think>"),
    _tagged("[THINK]", "[/THINK]"),
    _tagged("<|START_THINKING|>", "<|END_THINKING|>"),
    _tagged("◁think▷", "◁/think▷"),
    # Thinks in a channel of its own; opening the other channel skips it.
    Thought("<|channel|>analysis", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)


def begun_thought(answer: str) -> Thought | None:
    """The thought that an answer begins with."""
    start = answer.lstrip()
    return next((thought for thought in THOUGHTS if start.startswith(thought.opens)), None)


def open_thought(prompt: str) -> Thought | None:
    """The thought that a rendered prompt leaves open at its end, so that the model goes on thinking."""
    end = prompt.rstrip()
    return next((thought for thought in THOUGHTS if end.endswith(thought.opens)), None)


def without_reasoning(answer: str) -> tuple[str, bool]:
    """The answer after its thought, and whether the thought came to its end."""
    for thought in THOUGHTS:
        # The opening may stand in the prompt, so the closing alone is enough.
        _, closed, rest = answer.rpartition(thought.closes)
        if closed:
            return rest.strip(), True
    return ("", False) if begun_thought(answer) else (answer, True)
