"""Models that think before they answer: recognises them, switches their thinking off, or cuts thoughts off.

The first token of such a model belongs to a thought and not to a label. Chat templates have a switch, or an empty
thought is put before the answer. Where neither works, answers are sampled and their thoughts are cut off.
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
"""A question that is asked at first use: a model that answers at once puts its probability on the two letters."""
LETTERS = ("A", "B")


class Thought(NamedTuple):
    """The texts with which a family of models begins and ends its thoughts."""

    opens: str
    closes: str
    empty: str
    """The text of an empty thought: put before the answer, it makes the model answer at once."""


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
    # This family thinks in a separate channel; opening the other channel skips the thought.
    Thought("<|channel|>analysis", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),
)


def begun_thought(answer: str) -> Thought | None:
    """Returns the kind of thought that an answer begins with; None where it begins with none."""
    start = answer.lstrip()
    return next((thought for thought in THOUGHTS if start.startswith(thought.opens)), None)


def open_thought(prompt: str) -> Thought | None:
    """Returns the kind of thought that a rendered prompt leaves open at its end; None where it opens none."""
    end = prompt.rstrip()
    return next((thought for thought in THOUGHTS if end.endswith(thought.opens)), None)


def without_reasoning(answer: str) -> tuple[str, bool]:
    """Returns the answer after its thought, and False where the thought did not end."""
    for thought in THOUGHTS:
        # The opening may stand in the prompt, so the closing alone is enough.
        _, closed, rest = answer.rpartition(thought.closes)
        if closed:
            return rest.strip(), True
    return ("", False) if begun_thought(answer) else (answer, True)
