"""Decision servers: models that answer typed questions about a text, the state, with a probability for each option.

They judge and do not read: they write no text. Where a server of chat completions answers such questions, too, its
model reads by the former and judges by the latter. Turns prompts with labels into states and questions, these into the
JSON of System One, of OpenAI's decisions API or of SGLang's, and the server's answers into label probabilities.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ragguard.engines.base import EngineInfo, Prompt, Span
from ragguard.engines.engine import FoundModel
from ragguard.engines.http.http_client import HttpClient, ServedModel
from ragguard.engines.http.openai import ChatModel
from ragguard.engines.http.replies import optional, unexpected, usage_of
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import Reply, Request, Value
from ragguard.engines.truncation import asked_shorter
from ragguard.errors import EngineError, EngineProtocolError, EngineRejected, UnfitText
from ragguard.records import Usage
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import in_parallel

FORM = 1
"""The version of how label questions become typed ones; part of the fingerprint."""
PLAIN = "Which of the options is the reply that the text asks for?"
"""The instructions that are sent when a prompt has no system message to take them from."""
_AT_ONCE = 16
"""The most requests of one call that are in flight."""
_MOST_QUESTIONS = 64
"""The most questions of one request: vLLM's limit, the lowest of the servers known."""
_MASS = ("label_mass", "x_label_mass", "option_mass")
_ROUNDING = 0.02
"""How far the sum of a question's probabilities may be from 1, since some servers round them."""
PUBLISHED: Mapping[tuple[str, str], float] = {("api.openai.com", "gpt-6-luna"): 0.10}
"""Published prices of a million tokens read, in dollars, by host and model; answers are free (read 2026-11-23)."""
_EXACTLY = 1e-9
"""The distance from 1 up to which a sum is 1: no model puts so little on all else, so that no mass was told."""
_REFUSED = re.compile(r"refus|declin|content[_ ]policy|safety|moderation", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """A question with its options. Levels of a score are options too, the lowest first."""

    instructions: str
    labels: tuple[str, ...]
    criteria: tuple[str, ...]
    """The meaning of each label in words; empty if that is not known."""

    @property
    def kind(self) -> str:
        """The type: `score` if the labels are two to ten whole numbers in rising order, else `choice`."""
        numbers = [int(label) for label in self.labels if label.isdecimal()]
        is_score = 2 <= len(numbers) == len(self.labels) <= 10 and numbers == sorted(numbers)
        return "score" if is_score else "choice"

    @property
    def names(self) -> tuple[str, ...]:
        """The options as they are sent: for a score the meaning of each level, else the labels."""
        return self.criteria if self.kind == "score" and self.criteria else self.labels

    @property
    def id(self) -> str:
        """A name made from the question's content alone: some servers show it to their model, so it must not vary."""
        return "q" + hashlib.sha256(repr(self).encode("utf-8", "surrogatepass")).hexdigest()[:12]

    @property
    def meanings(self) -> dict[str, str | None]:
        """The meaning of each label; None where it is not known."""
        return {label: said or None for label, said in zip_longest(self.labels, self.criteria)}


def typed(prompt: Prompt, labels: tuple[str, ...]) -> tuple[Prompt, TypedQuestion]:
    """Splits a prompt into the state and the question about it.

    The system message becomes the question's instructions, the other messages the state. The options are the prompt's
    own if it has any, else the labels.
    """
    instructions, state = PLAIN, replace(prompt, options=(), text="")
    if prompt.messages[0].role == "system" and len(prompt.messages) > 1:
        instructions = prompt.messages[0].content
        spans = tuple(Span(at - 1, start, end) for at, start, end in prompt.cuttable if at)
        state = Prompt(prompt.messages[1:], spans)
    if prompt.options:
        names, criteria = zip(*prompt.options, strict=True)
        return state, TypedQuestion(instructions, names, criteria)
    return state, TypedQuestion(instructions, labels, ())


def _text(state: Prompt) -> str:
    """Returns a state as one text: the message if there is only one, else all messages with their roles."""
    if len(state.messages) == 1:
        return state.messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in state.messages)


Questions: TypeAlias = Sequence[TypedQuestion]


def _system_one(model: str, state: str, questions: Questions) -> dict[str, Any]:
    asked = {
        one.id: {
            "type": one.kind,
            "instructions": one.instructions,
            "criteria": list(one.names) if one.kind == "score" else one.meanings,
        }
        for one in questions
    }
    return {"model": model, "state": state, "questions": asked}


def _listed(
    questions: Questions, name: str, text: str, choices: str, label: str, level: Callable[[str], Any]
) -> list[dict[str, Any]]:
    """Returns questions as a list, under the names that a form has for a question's name, its text, its choices and
    their labels, and with its form of a level."""
    asked = []
    for one in questions:
        if one.kind == "score":
            options = {"levels": [level(said) for said in one.names]}
        else:
            known = one.meanings.items()
            options = {choices: [{label: x} | ({"description": said} if said else {}) for x, said in known]}
        asked.append({name: one.id, text: one.instructions, "type": one.kind, **options})
    return asked


def _openai(model: str, state: str, questions: Questions) -> dict[str, Any]:
    asked = _listed(questions, "name", "instructions", "choices", "value", lambda said: {"label": said})
    return {"model": model, "input": state, "questions": asked}


def _sglang(model: str, state: str, questions: Questions) -> dict[str, Any]:
    """Returns a body in SGLang's form, which has no field `model` since such a server serves only one."""
    return {"input": state, "questions": _listed(questions, "id", "question", "options", "name", str)}


class Wire(NamedTuple):
    """A form of decision servers: the scheme of addresses that names it, and what a request holds."""

    scheme: str
    """`systemone` or `decisions`; also the path under the server's address."""
    name: str
    body: Callable[[str, str, Questions], dict[str, Any]]
    """Builds the body of a request from the model's name, the text of the state, and the questions."""


WIRES = (
    Wire("systemone", "systemone", _system_one),
    Wire("decisions", "openai", _openai),
    Wire("decisions", "sglang", _sglang),
)
"""The forms that are known, in the order in which they are tried."""


def read_answers(reply: Any, questions: Questions, url: str) -> list[tuple[float, ...]]:
    """Returns the probabilities of each question's labels. Raises EngineProtocolError for a reply without answers."""
    given = optional(reply, object, "answers")
    if isinstance(given, list):
        given = {optional(one, str, "name"): one for one in given}
    if not isinstance(given, Mapping):
        raise unexpected(url, "a reply with `answers`", reply)
    diagnostics = optional(reply, Mapping, "diagnostics") or {}
    return [_answer(one, given.get(one.id), diagnostics.get(one.id), url) for one in questions]


def _answer(question: TypedQuestion, found: Any, diagnostics: Any, url: str) -> tuple[float, ...]:
    """Returns the probabilities of a question's labels. Their sum is the label mass: the model's probability of any
    label at all, 1 where the server does not tell it.

    Raises UnfitText if the server declined to answer, EngineProtocolError without one probability for each option.
    """
    brief = f"{url}: the answer to the question {question.instructions[:60]!r}"
    if found is None or optional(found, str, "type") == "refusal":
        raise UnfitText(f"{brief} was declined by the server; the others are not affected")
    given = optional(found, object, "probabilities")
    row = _row(question, given)
    told = [optional(held, object, name) for held in (diagnostics, found) for name in _MASS]
    mass = next((one for one in told if isinstance(one, int | float)), 1.0)
    whole = sum(row)
    # Said this way round, since no comparison holds of a NaN.
    fits = row and min(row) >= -_ROUNDING and abs(whole - 1) <= _ROUNDING and 0 <= mass <= 1 + _ROUNDING
    if not fits:
        raise EngineProtocolError(
            f"{brief} should be one probability for each of {', '.join(question.names)}, which add up to 1, and a "
            f"label mass from 0 to 1; the server gave {str(given)[:120]} with a label mass of {mass:.3g}"
        )
    return tuple(min(1.0, mass) * max(0.0, p) / whole for p in row)


def _row(question: TypedQuestion, given: Any) -> list[float]:
    """Returns the probabilities in the order of the labels; none if they are not one number for each option.

    A server names an option by its label, and a level by its text or its number from 0.
    """
    if isinstance(given, list):
        labels = [optional(one, str, "label") or optional(one, str, "value") for one in given]
        given = dict(zip(labels, [optional(one, object, "probability") for one in given], strict=True))
    by_name = {str(name): p for name, p in given.items()} if isinstance(given, Mapping) else {}
    for names in (question.names, tuple(map(str, range(len(question.names))))):
        if by_name.keys() == set(names):
            row = [by_name[name] for name in names]
            return row if all(isinstance(p, int | float) for p in row) else []
    return []


Decided: TypeAlias = tuple[list[tuple[float, ...]], Usage]
"""The probabilities of each question's labels, and the cost."""
Decide: TypeAlias = Callable[[str, Questions, float | None], Awaitable[Decided]]
"""Answers questions about a state until a deadline."""


@dataclass(frozen=True, slots=True)
class DecisionModel:
    """A `FoundModel`: turns label requests into typed questions, those about one state together."""

    info: EngineInfo
    decide: Decide
    reader: FoundModel | None = None
    """The model that answers everything but typed questions; None where the model judges alone."""

    @classmethod
    def named(
        cls, model: str, form: str, location: str, decide: Decide, notes: Sequence[str] = (), *abilities: str
    ) -> DecisionModel:
        """Returns a model that judges alone, with its description."""
        info = EngineInfo(
            model=model,
            kind="decisions",
            fingerprint=f"decisions/{form}/{FORM}",
            prompts="decisions",
            capabilities=frozenset({"exact_labels", "decisions", *abilities}),
            location=location,
            notes=tuple(notes),
        )
        return cls(info, decide)

    async def answer(self, request: Request) -> Reply:
        """Answers with the probability of each label; of a typed question, of its own labels, and 0 for the others.
        Without a reader all else is refused: nothing is written, and only options have probabilities."""
        typed_labels = isinstance(request, LabelRequest) and request.is_typed(self.info)
        if self.reader is not None and not typed_labels:
            return await self.reader.answer(request)
        if not isinstance(request, LabelRequest) or len(request.labels) == 1:
            raise EngineRejected(
                f"{self.info.model} at {self.info.location} only answers typed questions: it cannot write, abstain, "
                f"or give the probability of a text: give it as `judge=`, and a model that reads as the "
                "engine"
            )

        states: dict[Prompt, dict[TypedQuestion, list[int]]] = {}
        for row, prompt in enumerate(request.prompts):
            state, question = typed(prompt, request.labels)
            states.setdefault(state, {}).setdefault(question, []).append(row)
        calls = [
            (state, dict(list(rows.items())[first : first + _MOST_QUESTIONS]))
            for state, rows in states.items()
            for first in range(0, len(rows), _MOST_QUESTIONS)
        ]

        async def ask(questions: Questions, state: Prompt) -> Decided:
            return await self.decide(_text(state), questions, request.deadline)

        replies = await in_parallel(
            [partial(asked_shorter, state, partial(ask, [*rows]), 1) for state, rows in calls], _AT_ONCE
        )
        usage, values = Usage(), dict[int, Value]()
        for (_, rows), ((answers, spent), cut) in zip(calls, replies, strict=True):
            usage += spent
            for (question, places), answer in zip(rows.items(), answers, strict=True):
                p_of = dict(zip(question.labels, answer, strict=True))
                p = tuple(p_of.get(label, 0.0) for label in request.labels)
                values.update(dict.fromkeys(places, (p, True, "first_token", None, None, cut)))

        return Reply([values[row] for row in range(len(request.prompts))], usage)


async def _decide(
    client: HttpClient, wire: Wire, model: str, state: str, questions: Questions, deadline: float | None
) -> Decided:
    try:
        reply = await client.ask(f"/{wire.scheme}", wire.body(model, state, questions), deadline=deadline)
    except EngineRejected as error:
        if error.status == 400 and _REFUSED.search(str(error)):
            raise UnfitText(f"the server declined to judge a text: {error}") from error
        raise
    url = f"POST {client.address.base}/{wire.scheme}"
    return read_answers(reply, questions, url), usage_of(reply, len(questions))


_NO_SUCH_FORM = frozenset({400, 404, 405, 415, 422, 501})
"""The statuses with which a server refuses a form that it does not know."""


async def find_decisions(client: HttpClient, served: ServedModel, scheme: str) -> DecisionModel:
    """Asks one question in each form of a scheme, or of all schemes where it is empty, until the server answers.

    Raises EngineRejected with the status 501, and with what the server said to each form, where it answers in none.
    """
    base, faults = client.address.base, list[str]()
    server = hashlib.sha256(base.encode()).hexdigest()[:12]
    trial = TypedQuestion("Does the text name a town?", ("yes", "no"), ("it names one", "it names none"))
    for wire in (wire for wire in WIRES if scheme in ("", wire.scheme)):
        decide = partial(_decide, client, wire, served.id)
        try:
            (answer,), _ = await decide("Oslo is a town.", [trial], None)
        except EngineRejected as error:
            if error.status not in _NO_SUCH_FORM:
                raise
            faults.append(str(error))
            continue
        notes = list(served.notes)
        if price := PUBLISHED.get((urlsplit(base).hostname or "", served.id)):
            notes.append(
                f"published price: ${price:.2f} for a million tokens read: Price(prompt={price}, output=0)"
            )
        form, abilities = f"{wire.name}/{served.id}/{server}", ["label_mass"] * (sum(answer) < 1 - _EXACTLY)
        return DecisionModel.named(served.id, form, base, decide, notes, *abilities)
    raise EngineRejected(
        f"{base} does not answer typed questions in the form of {scheme}: {'; '.join(faults)}; give the same server "
        f"without `{scheme}:`, so that it is asked for labels, if it shows log-probabilities",
        status=501,
    )


async def with_decisions(reader: ChatModel, client: HttpClient, served: ServedModel) -> FoundModel:
    """Returns a model that judges by typed questions where its server answers these, else the model as it is.

    A server of chat completions takes one prompt a request: typed questions are fewer requests at equal numbers, and
    exact where labels would be sampled (docs/studies/decisions.md). Labels that the server shows, with how much of its
    probability lies on them, are not given up for typed questions that do not tell that.
    """
    base, info = client.address.base, reader.info
    try:
        judge = await find_decisions(client, served, "")
    except EngineProtocolError:  # something answers there, and not typed questions
        return reader
    except EngineError as error:
        if isinstance(error, EngineRejected) and error.status == 501:
            return reader
        unknown = f"labels judge: whether the server answers typed questions could not be found out ({error})"
        return replace(reader, info=replace(info, notes=(*info.notes, unknown)))
    tells_mass = judge.info.capabilities & {"label_mass"}
    if "top_logprobs" in info.capabilities and not tells_mass:
        return reader
    form = judge.info.fingerprint.split("/")[1]
    said = (
        f"{base} answers typed questions, too, so it is asked for judgements in that form ({form}), all about a "
        f"passage in one request; `labels:{base}` asks for labels instead"
    )
    NOTICES.once(f"typed questions of {base}", said)
    both = replace(
        info,
        prompts="default+decisions",
        fingerprint=f"{info.fingerprint}+judges:{form}/{FORM}",
        capabilities=info.capabilities | {"typed_questions"} | tells_mass,
        notes=(*info.notes, said),
    )
    return replace(judge, info=both, reader=reader)
