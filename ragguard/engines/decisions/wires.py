"""The JSON protocols of decision servers: System One, OpenAI's decisions API and SGLang's.

Each is a path, a function that builds the request body, and one shared reader of replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragguard.engines.decisions.questions import TypedAnswer, TypedQuestion, read_answer
from ragguard.engines.http.body import unexpected


@dataclass(frozen=True, slots=True)
class Wire:
    """A protocol of decision servers: where a request goes, what it holds, and how the reply is read."""

    name: str
    path: str
    body: Callable[[str, str, Sequence[TypedQuestion]], dict[str, Any]]
    """Builds the body of a request from the model's name, the text of the state, and the questions."""

    def answers(self, reply: Any, questions: Sequence[TypedQuestion], url: str) -> list[TypedAnswer]:
        """Reads a reply into answers in the order of the questions. Raises EngineProtocolError if it holds none."""
        given = reply.get("answers") if isinstance(reply, Mapping) else None
        if isinstance(given, list):
            named = [one.get("name", one.get("id")) if isinstance(one, Mapping) else None for one in given]
            given = dict(zip(named, given, strict=True))
        if not isinstance(given, Mapping):
            raise unexpected(url, "a reply with `answers`", reply)
        diagnostics = reply.get("diagnostics")
        known = diagnostics if isinstance(diagnostics, Mapping) else {}
        return [read_answer(one, given.get(one.id), known.get(one.id), url) for one in questions]


def _pairs(question: TypedQuestion) -> list[tuple[str, str]]:
    return list(zip(question.labels, question.criteria or ("",) * len(question.labels), strict=True))


def _system_one(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    return {
        "model": model,
        "state": state,
        "questions": {
            one.id: {
                "type": "score" if one.is_score else "choice",
                "instructions": one.instructions,
                "criteria": list(one.names)
                if one.is_score
                else {label: meaning or None for label, meaning in _pairs(one)},
            }
            for one in questions
        },
    }


def _openai(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    def options(one: TypedQuestion) -> dict[str, Any]:
        if one.is_score:
            return {"type": "score", "levels": [{"label": name} for name in one.names]}
        choices = [
            {"value": label, **({"description": meaning} if meaning else {})}
            for label, meaning in _pairs(one)
        ]
        return {"type": "choice", "choices": choices}

    asked = [{"name": one.id, "instructions": one.instructions, **options(one)} for one in questions]
    return {"model": model, "input": state, "questions": asked}


def _sglang(model: str, state: str, questions: Sequence[TypedQuestion]) -> dict[str, Any]:
    """Returns a body in SGLang's form, which has no field `model` since such a server serves only one."""

    def options(one: TypedQuestion) -> dict[str, Any]:
        if one.is_score:
            return {"type": "score", "levels": list(one.names)}
        named = [
            {"name": label, **({"description": meaning} if meaning else {})} for label, meaning in _pairs(one)
        ]
        return {"type": "choice", "options": named}

    asked = [{"id": one.id, "question": one.instructions, **options(one)} for one in questions]
    return {"input": state, "questions": asked}


SYSTEM_ONE = Wire("systemone", "/systemone", _system_one)
OPENAI = Wire("openai", "/decisions", _openai)
SGLANG = Wire("sglang", "/decisions", _sglang)
WIRES: Mapping[str, tuple[Wire, ...]] = {"systemone": (SYSTEM_ONE,), "decisions": (OPENAI, SGLANG)}
"""The protocols that are tried, in this order, for an address with the scheme `systemone:` or `decisions:`."""
