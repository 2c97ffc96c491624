"""Typed questions: a text (the state) and questions with a fixed list of options, as decision servers answer them.

Turns a prompt with labels into a state and a question, these into the JSON of System One, of OpenAI's decisions API or
of SGLang's, and the server's answer into label probabilities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragguard.engines.base import Prompt, Span
from ragguard.engines.http.replies import optional, unexpected
from ragguard.errors import EngineProtocolError, UnfitText

PLAIN = "Which of the options is the reply that the text asks for?"
"""The instructions that are sent when a prompt has no system message to take them from."""
_MASS = ("label_mass", "x_label_mass", "option_mass")
_ROUNDING = 0.02
"""How far the sum of a question's probabilities may be from 1, since some servers round them."""


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """A question with its options. Levels of a score are options too, the lowest first."""

    instructions: str
    labels: tuple[str, ...]
    criteria: tuple[str, ...]
    """The meaning of each label in words; empty if that is not known."""

    @property
    def is_score(self) -> bool:
        """True if the labels are two to ten whole numbers in rising order; the server is then asked for a score."""
        numbers = [int(label) for label in self.labels if label.isdecimal()]
        return 2 <= len(numbers) == len(self.labels) <= 10 and numbers == sorted(numbers)

    @property
    def names(self) -> tuple[str, ...]:
        """The options as they are sent: for a score the meaning of each level, else the labels."""
        return self.criteria if self.is_score and self.criteria else self.labels

    @property
    def id(self) -> str:
        """A name made from the question's content alone: some servers show it to their model, so it must not vary."""
        return "q" + hashlib.sha256(repr(self).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def typed(prompt: Prompt, labels: tuple[str, ...]) -> tuple[Prompt, TypedQuestion]:
    """Splits a prompt into the state and the question about it.

    The system message becomes the question's instructions, the other messages the state. The options are the prompt's
    own if it has any, else the labels.
    """
    system = [message.content for message in prompt.messages if message.role == "system"]
    rest = [index for index, message in enumerate(prompt.messages) if message.role != "system"]
    if not rest or not system:
        state, instructions = replace(prompt, options=(), text=""), PLAIN
    else:
        moved = {index: at for at, index in enumerate(rest)}
        spans = [span for span in prompt.cuttable if span.message in moved]
        state = Prompt(
            tuple(prompt.messages[index] for index in rest),
            tuple(Span(moved[span.message], span.start, span.end) for span in spans),
        )
        instructions = "\n\n".join(system)
    if prompt.options:
        names, criteria = zip(*prompt.options, strict=True)
        return state, TypedQuestion(instructions, names, criteria)
    return state, TypedQuestion(instructions, labels, ())


def state_text(state: Prompt) -> str:
    """Returns a state as one text: the message if there is only one, else all messages with their roles."""
    if len(state.messages) == 1:
        return state.messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in state.messages)


def read_answer(question: TypedQuestion, found: Any, diagnostics: Any, where: str) -> tuple[float, ...]:
    """Reads the probabilities of a question's labels off the server's answer. Their sum is the label mass: the model's
    probability of any label at all.

    Raises UnfitText if the server declined to answer, EngineProtocolError without one probability for each option.
    """
    brief = f"the question {question.instructions[:60]!r}"
    if found is None or optional(found, str, "type") == "refusal":
        raise UnfitText(f"{where}: the server declined to answer {brief}; the others are not affected")
    given = optional(found, object, "probabilities")
    row = _row(question, given)
    if row is None:
        raise EngineProtocolError(
            f"{where}: expected one probability for each of {', '.join(question.names)} as the answer to {brief}, got "
            f"{str(given)[:120]}"
        )
    whole = sum(row)
    if not all(-_ROUNDING <= p <= 1 + _ROUNDING for p in row) or not abs(whole - 1) <= _ROUNDING:
        raise EngineProtocolError(
            f"{where}: the probabilities of the answer to {brief} add up to {whole:.3g} and not to 1"
        )
    told = [optional(held, object, name) for held in (diagnostics, found) for name in _MASS]
    mass = next((one for one in told if isinstance(one, int | float)), 1.0)
    if not 0 <= mass <= 1 + _ROUNDING:
        raise EngineProtocolError(
            f"{where}: the label mass of the answer to {brief} is {mass:.3g}, not from 0 to 1"
        )
    return tuple(min(1.0, mass) * max(0.0, p) / whole for p in row)


def _row(question: TypedQuestion, given: Any) -> list[float] | None:
    """Returns the probabilities in the order of the labels, or None if they are not one number for each option.

    A server may name an option by its label, and a level by its text or its number from 0.
    """
    if isinstance(given, Sequence) and not isinstance(given, str):
        if not all(isinstance(one, Mapping) for one in given):
            return None
        given = {one.get("label", one.get("value")): one.get("probability") for one in given}
    if not isinstance(given, Mapping):
        return None
    by_name = {str(name): p for name, p in given.items()}
    for names in (question.names, tuple(map(str, range(len(question.names))))):
        if by_name.keys() == set(names):
            row = [by_name[name] for name in names]
            fit = all(isinstance(p, int | float) and not isinstance(p, bool) for p in row)
            return row if fit else None
    return None


@dataclass(frozen=True, slots=True)
class Wire:
    """A protocol of decision servers: where a request goes, what it holds, and how the reply is read."""

    name: str
    path: str
    body: Callable[[str, str, Sequence[TypedQuestion]], dict[str, Any]]
    """Builds the body of a request from the model's name, the text of the state, and the questions."""

    def answers(self, reply: Any, questions: Sequence[TypedQuestion], url: str) -> list[tuple[float, ...]]:
        """Reads a reply into the probabilities of each question's labels. Raises EngineProtocolError if it has none."""
        given = optional(reply, object, "answers")
        if isinstance(given, list):
            named = [optional(one, str, "name") or optional(one, str, "id") for one in given]
            given = dict(zip(named, given, strict=True))
        if not isinstance(given, Mapping):
            raise unexpected(url, "a reply with `answers`", reply)
        told = optional(reply, Mapping, "diagnostics") or {}
        return [read_answer(one, given.get(one.id), told.get(one.id), url) for one in questions]


def _choices(question: TypedQuestion, label: str, meaning: str) -> list[dict[str, str]]:
    """Returns the options of a choice as objects, under the names that a form has for a label and its meaning."""
    if not question.criteria:
        return [{label: name} for name in question.labels]
    pairs = zip(question.labels, question.criteria, strict=True)
    return [{label: name, **({meaning: said} if said else {})} for name, said in pairs]


def _system_one(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    def criteria(one: TypedQuestion) -> Any:
        return (
            list(one.names)
            if one.is_score
            else {c["label"]: c.get("is") for c in _choices(one, "label", "is")}
        )

    asked = {
        one.id: {
            "type": "score" if one.is_score else "choice",
            "instructions": one.instructions,
            "criteria": criteria(one),
        }
        for one in questions
    }
    return {"model": model, "state": state, "questions": asked}


def _openai(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    def options(one: TypedQuestion) -> dict[str, Any]:
        if one.is_score:
            return {"type": "score", "levels": [{"label": name} for name in one.names]}
        return {"type": "choice", "choices": _choices(one, "value", "description")}

    asked = [{"name": one.id, "instructions": one.instructions, **options(one)} for one in questions]
    return {"model": model, "input": state, "questions": asked}


def _sglang(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    """Returns a body in SGLang's form, which has no field `model` since such a server serves only one."""

    def options(one: TypedQuestion) -> dict[str, Any]:
        if one.is_score:
            return {"type": "score", "levels": list(one.names)}
        return {"type": "choice", "options": _choices(one, "name", "description")}

    asked = [{"id": one.id, "question": one.instructions, **options(one)} for one in questions]
    return {"input": state, "questions": asked}


WIRES: Mapping[str, tuple[Wire, ...]] = {
    "systemone": (Wire("systemone", "/systemone", _system_one),),
    "decisions": (Wire("openai", "/decisions", _openai), Wire("sglang", "/decisions", _sglang)),
}
"""The protocols that are tried, in this order, for an address with the scheme `systemone:` or `decisions:`."""
