"""Servers of ours for the three forms of typed questions. Each request is held to the published form: what is missing,
of a wrong type or unknown is refused with the status that the real one gives, and so is a question over a limit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.misbehaving_server import Reply, Request

FORMS = ("systemone", "openai", "sglang")
_TEXT, _OPTIONAL_TEXT = (str,), (str, type(None))
_CONTENT = (str, dict, list)


class RefusedError(Exception):
    """A request that does not keep to the form."""


def overlap(state: str, question: str, options: list[str]) -> list[float]:
    """Returns probabilities that depend on the state, the question and the options alone: the more words of the
    question the state has, the more weight the first of two options or the last level has."""
    words = set(re.findall(r"\w+", question.lower()))
    share = len(words & set(re.findall(r"\w+", state.lower()))) / max(1, len(words))
    peak = (1 - share) if len(options) == 2 else share
    weights = [0.05 + (1 - abs(peak - at / max(1, len(options) - 1))) ** 4 for at in range(len(options))]
    return [weight / sum(weights) for weight in weights]


def _check(
    value: Any, required: Mapping[str, tuple[type, ...]], optional: Mapping[str, tuple[type, ...]]
) -> None:
    if not isinstance(value, dict):
        raise RefusedError("an object was expected")
    for name, kinds in required.items():
        if name not in value:
            raise RefusedError(f"{name}: field required")
        if not isinstance(value[name], kinds):
            raise RefusedError(f"{name}: wrong type")
    for name in value.keys() - required.keys():
        if name not in optional:
            raise RefusedError(f"unknown field: {name}")
        if not isinstance(value[name], optional[name]):
            raise RefusedError(f"{name}: wrong type")


def _bounded(what: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise RefusedError(f"{what}: from {least} to {most}")


@dataclass
class DecisionServer:
    """`MisbehavingServer(DecisionServer("openai").handle)`."""

    form: str
    models: tuple[str, ...] = ("judge-1",)
    context: int = 400
    """The words that a state may have."""
    mass: float | None = None
    """The label mass that is told; None: none."""
    most_questions: int = 2000
    probabilities: Callable[[str, str, list[str]], list[float]] = overlap
    refuses: str = ""
    """Questions about a state with this word are declined."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """The state and the number of questions of each request that was answered."""

    def handle(self, request: Request) -> Reply:
        """Returns the reply to a request."""
        if request.path == "/v1/models":
            return Reply({"object": "list", "data": [{"id": name} for name in self.models]})
        if request.path != f"/v1/{'systemone' if self.form == 'systemone' else 'decisions'}":
            return Reply({"detail": "Not Found"}, 404)
        try:
            return Reply(getattr(self, f"_{self.form}")(request.json))
        except RefusedError as error:
            status = 422 if self.form == "systemone" else 400
            return Reply({"error": {"message": str(error), "type": "invalid_request_error"}}, status)

    def _state(self, state: Any, questions: int) -> str:
        text = state if isinstance(state, str) else json.dumps(state)
        _bounded("questions", questions, 1, self.most_questions)
        if (words := len(text.split())) > self.context:
            raise RefusedError(
                f"maximum model length is {self.context} tokens, the input contains {words} tokens"
            )
        self.asked.append((text, questions))
        return text

    def _declined(self, state: str) -> bool:
        return bool(self.refuses) and self.refuses in state

    def _systemone(self, body: Any) -> dict[str, Any]:
        _check(body, {"model": _TEXT, "state": _CONTENT, "questions": (dict,)}, {})
        self._model(body)
        state = self._state(body["state"], len(body["questions"]))
        answers, diagnostics = {}, {}
        for name, one in reversed(body["questions"].items()):
            _check(one, {"type": _TEXT, "instructions": _CONTENT}, {"criteria": (dict, list, type(None))})
            criteria = one.get("criteria")
            if one["type"] == "choice" and isinstance(criteria, dict):
                _bounded("criteria", len(criteria), 1, 255)
                keys = options = list(criteria)
                if not all(isinstance(text, _OPTIONAL_TEXT) for text in criteria.values()):
                    raise RefusedError("criteria: descriptions are texts or null")
            elif one["type"] == "score" and isinstance(criteria, list):
                _bounded("criteria", len(criteria), 1, 10)
                options, keys = criteria, [str(level) for level in range(len(criteria))]
            else:
                raise RefusedError("criteria: not those of the type")
            p = self.probabilities(state, one["instructions"], options)
            # Neither form promises an order.
            answers[name] = {
                "type": one["type"],
                "probabilities": dict(reversed([*zip(keys, p, strict=True)])),
            }
            if self.mass is not None:
                diagnostics[name] = {"label_mass": self.mass, "argmax_is_label": True}
            if self._declined(state):
                del answers[name]
        usage = {"input_tokens": len(state.split()) + 5 * len(answers), "output_tokens": 0}
        return {"model": body["model"], "answers": answers, "usage": usage, "diagnostics": diagnostics}

    def _openai(self, body: Any) -> dict[str, Any]:
        _check(
            body, {"model": _TEXT, "input": (str, list), "questions": (list,)}, {"safety_identifier": _TEXT}
        )
        self._model(body)
        state = self._state(body["input"], len(body["questions"]))
        answers: list[dict[str, Any]] = []
        for one in body["questions"]:
            kind = one.get("type")
            listed = {"choice": "choices", "score": "levels"}.get(kind)
            if listed is None:
                raise RefusedError(f"type: {kind}")
            _check(one, {"type": _TEXT, "instructions": (str, list), listed: (list,)}, {"name": _TEXT})
            _bounded(listed, len(one[listed]), 2, 255 if kind == "choice" else 10)
            key = "value" if kind == "choice" else "label"
            for option in one[listed]:
                _check(option, {key: _TEXT}, {"description": _TEXT})
            names = [option[key] for option in one[listed]]
            p = self.probabilities(state, one["instructions"], names)
            rows = [
                {key: name, "probability": value, **({"value": level} if kind == "score" else {})}
                for level, (name, value) in enumerate(zip(names, p, strict=True))
            ]
            answer: dict[str, Any] = {"type": kind, "confidence": max(p), "probabilities": rows[::-1]}
            answer |= {"choice": names[0]} if kind == "choice" else {"score": 0.0}
            answers.append(
                {"name": one.get("name"), **({"type": "refusal"} if self._declined(state) else answer)}
            )
        usage = {"input_tokens": len(state.split()) + 5 * len(answers), "output_tokens": 0}
        return {"model": body["model"], "answers": answers, "usage": usage}

    def _sglang(self, body: Any) -> dict[str, Any]:
        extra = {
            "temperature": (int, float),
            "prompt_format_version": (int, str),
            "return_prompt_token_ids": (bool,),
        }
        _check(body, {"input": _CONTENT, "questions": (list,)}, extra)
        state = self._state(body["input"], len(body["questions"]))
        answers = {}
        for one in body["questions"]:
            listed = {"choice": "options", "score": "levels"}.get(one.get("type"))
            if listed is None:
                raise RefusedError(f"type: {one.get('type')}")
            _check(one, {"id": _TEXT, "type": _TEXT, "question": _TEXT, listed: (list,)}, {})
            _bounded(listed, len(one[listed]), 2, 26 if listed == "options" else 10)
            for option in one[listed] if listed == "options" else ():
                _check(option, {"name": _TEXT}, {"description": _TEXT})
            names = [option["name"] for option in one[listed]] if listed == "options" else one[listed]
            p = self.probabilities(state, one["question"], names)
            answers[one["id"]] = {
                "probabilities": dict(zip(names, p, strict=True)),
                "label_mass": 1.0 if self.mass is None else self.mass,
            }
            if self._declined(state):
                del answers[one["id"]]
        usage = {"prompt_tokens": len(state.split()) + 5 * len(answers), "completion_tokens": 0}
        return {"answers": answers, "usage": usage}

    def _model(self, body: Mapping[str, Any]) -> None:
        if body["model"] not in self.models:
            raise RefusedError(f"model: {body['model']} is not served")
