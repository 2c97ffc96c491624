"""Models that answer typed questions with a probability for each option: on a server, or LangChain's in this process.

They judge and do not read: they write no text. Where a server of chat completions answers such questions, too, its
model reads by the former and judges by the latter.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ragguard.engines.base import EngineInfo, Prompt
from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.http_client import HttpClient, ServedModel
from ragguard.engines.http.openai import AT_ONCE, ChatModel
from ragguard.engines.http.replies import usage_of
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import Reply, Request, Value
from ragguard.engines.truncation import asked_shorter
from ragguard.engines.typed_questions import WIRES, TypedQuestion, Wire, read_answer, state_text, typed
from ragguard.errors import EngineError, EngineOverloaded, EngineProtocolError, EngineRejected, UnfitText
from ragguard.records import Usage
from ragguard.runtime.faults import NOTICES
from ragguard.runtime.limiter import in_parallel

FORM = 1
"""The version of how label questions become typed ones; part of the fingerprint."""
JUDGES_ONLY = (
    "answers typed questions and neither writes nor abstains, and cannot tell how probable a given text is: give it as "
    "`judge=`, and a model that reads as the engine"
)
_MOST_QUESTIONS = 64
"""The most questions of one request: vLLM's limit, the lowest of the servers known."""

Decided: TypeAlias = tuple[list[tuple[float, ...]], Usage]
"""The probabilities of each question's labels, and the cost."""
Decide: TypeAlias = Callable[[str, Sequence[TypedQuestion], float | None], Awaitable[Decided]]
"""Answers questions about one state until a deadline."""


@dataclass(frozen=True, slots=True)
class DecisionModel:
    """A `FoundModel`: turns label requests into typed questions, those about one state together."""

    info: EngineInfo
    decide: Decide

    @classmethod
    def named(
        cls, model: str, fingerprint: str, location: str, decide: Decide, notes: tuple[str, ...] = ()
    ) -> DecisionModel:
        """Returns a decision model with its description."""
        info = EngineInfo(
            model=model,
            kind="decisions",
            fingerprint=f"decisions/{fingerprint}/{FORM}",
            prompts="decisions",
            capabilities=frozenset({"exact_labels", "decisions"}),
            location=location,
            notes=notes,
        )
        return cls(info, decide)

    async def answer(self, request: Request) -> Reply:
        """Answers with the probability of each label; of a typed question, of its own labels, and 0 for the others.
        Refuses all else: nothing is written, and only options have probabilities."""
        if not isinstance(request, LabelRequest) or len(request.labels) == 1:
            raise EngineRejected(f"{self.info.model} at {self.info.location} {JUDGES_ONLY}")
        began = time.monotonic()
        states: dict[Prompt, dict[TypedQuestion, list[int]]] = {}
        for row, prompt in enumerate(request.prompts):
            state, question = typed(prompt, request.labels)
            states.setdefault(state, {}).setdefault(question, []).append(row)
        calls = [
            (state, dict(list(rows.items())[first : first + _MOST_QUESTIONS]))
            for state, rows in states.items()
            for first in range(0, len(rows), _MOST_QUESTIONS)
        ]

        async def ask(questions: Sequence[TypedQuestion], state: Prompt) -> Decided:
            return await self.decide(state_text(state), questions, request.deadline)

        replies = await in_parallel(
            [partial(asked_shorter, state, partial(ask, [*rows]), 1) for state, rows in calls], AT_ONCE
        )
        usage, values = Usage(), dict[int, Value]()
        for (_, rows), ((answers, spent), cut) in zip(calls, replies, strict=True):
            usage += spent
            for (question, places), answer in zip(rows.items(), answers, strict=True):
                p_of = dict(zip(question.labels, answer, strict=True))
                p = tuple(p_of.get(label, 0.0) for label in request.labels)
                values.update(dict.fromkeys(places, (p, True, "first_token", None, None, cut)))
        usage = replace(usage, prompts=len(request.prompts), seconds=time.monotonic() - began)
        return Reply([values[row] for row in range(len(request.prompts))], usage)


_MODULE = "langchain_core.decisions"


class LangChainJudge(ModelEngine):
    """The decision model that a user has built with LangChain.

    Args:
        model: The model; its asynchronous call is awaited.
    """

    only_judges = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    async def look(self) -> DecisionModel:
        """Returns the model under its own name and that of its class."""
        kind, name = type(self._model).__name__, str(self._model.model)
        return DecisionModel.named(name, f"langchain/{kind}/{name}", kind, self._decide)

    async def _decide(
        self, state: str, questions: Sequence[TypedQuestion], deadline: float | None
    ) -> Decided:
        kinds = sys.modules[_MODULE]
        asked = {}
        for one in questions:
            if one.is_score:
                asked[one.id] = kinds.Score(criteria=[*one.names], instructions=one.instructions)
            else:
                meanings = one.criteria or (None,) * len(one.labels)
                criteria = dict(zip(one.labels, meanings, strict=True))
                asked[one.id] = kinds.Choice(criteria=criteria, instructions=one.instructions)
        try:
            reply = await self._model.ainvoke({"state": state, "questions": asked})
        except Exception as error:
            if "refusal" in type(error).__name__.lower():
                raise UnfitText(f"{self._model.model} declined to judge a text: {error}") from error
            raise
        found = {name: answer.model_dump() for name, answer in reply.answers.items()}
        answers = [read_answer(one, found.get(one.id), None, self._model.model) for one in questions]
        spent = reply.usage or {}
        counts = (int(spent.get(name, 0)) for name in ("input_tokens", "output_tokens"))
        return answers, Usage(1, len(questions), *counts)

    async def aclose(self) -> None:
        """Leaves the model open: the code that made it closes it."""


_PUBLISHED: Mapping[tuple[str, str], float] = {("api.openai.com", "gpt-6-luna"): 0.10}
"""Published prices of a million tokens read, in dollars, by host and model; answers are free (read 2026-11-23)."""
_EXACTLY = 1e-9
"""The distance from 1 up to which a sum is 1: no model puts so little on all else, so that no mass was told."""
_REFUSED = re.compile(r"refus|declin|content[_ ]policy|safety|moderation", re.IGNORECASE)


async def find_decisions(
    client: HttpClient, served: ServedModel, wires: Sequence[Wire]
) -> DecisionModel | list[str]:
    """Asks one question in each form until the server answers; returns the model, or what was said to each form."""
    base, faults = client.address.base, list[str]()
    trial = TypedQuestion("Does the text name a town?", ("yes", "no"), ("it names one", "it names none"))
    for wire in wires:
        decide = partial(_decide, client, wire, served.id)
        try:
            (answer,), _ = await decide("Oslo is a town.", [trial], None)
        except (EngineRejected, EngineOverloaded) as error:
            if error.status not in (400, 404, 405, 415, 422, 501):
                raise
            faults.append(str(error))
            continue
        server = hashlib.sha256(base.encode()).hexdigest()[:12]
        notes = [served.note] if served.note else []
        if price := _PUBLISHED.get((urlsplit(base).hostname or "", served.id)):
            notes.append(
                f"published price: ${price:.2f} for a million tokens read: Price(prompt={price}, output=0)"
            )
        name = f"{wire.name}/{served.id}/{server}"
        found = DecisionModel.named(served.id, name, base, decide, tuple(notes))
        if sum(answer) < 1 - _EXACTLY:
            info = replace(found.info, capabilities=found.info.capabilities | {"label_mass"})
            found = replace(found, info=info)
        return found
    return faults


async def _decide(
    client: HttpClient,
    wire: Wire,
    model: str,
    state: str,
    questions: Sequence[TypedQuestion],
    deadline: float | None,
) -> Decided:
    try:
        reply = await client.post(wire.path, wire.body(model, state, questions), deadline=deadline)
    except EngineRejected as error:
        if error.status == 400 and _REFUSED.search(str(error)):
            raise UnfitText(f"the server declined to judge a text: {error}") from error
        raise
    url = f"POST {client.address.base}{wire.path}"
    return wire.answers(reply, questions, url), usage_of(reply, len(questions))


async def with_decisions(reader: ChatModel, client: HttpClient, served: ServedModel) -> ChatModel:
    """Returns a model that judges by typed questions where its server answers these, else the model as it is.

    A server of chat completions takes one prompt a request: typed questions are fewer requests at equal numbers, and
    exact where labels would be sampled (docs/studies/decisions.md). Labels that the server shows, with how much of its
    probability lies on them, are not given up for typed questions that do not tell that.
    """
    try:
        judge = await find_decisions(client, served, [wire for some in WIRES.values() for wire in some])
    except EngineProtocolError:  # something answers there, and not typed questions
        return reader
    except EngineError as error:
        unknown = f"labels judge: whether the server answers typed questions could not be found out ({error})"
        return replace(reader, info=replace(reader.info, notes=(*reader.info.notes, unknown)))
    if isinstance(judge, list):
        return reader
    tells_mass = judge.info.capabilities & {"label_mass"}
    if reader.shows and not tells_mass:
        return reader
    base, form = client.address.base, judge.info.fingerprint.split("/")[1]
    said = (
        f"{base} answers typed questions, too: it judges by these ({form}), all questions about a passage in one "
        f"request; `labels:{base}` judges by labels"
    )
    NOTICES.once(f"typed questions of {base}", said)
    info = replace(
        reader.info,
        prompts="default+decisions",
        fingerprint=f"{reader.info.fingerprint}+judges:{form}/{FORM}",
        capabilities=reader.info.capabilities | {"typed_questions"} | tells_mass,
        notes=(*reader.info.notes, said),
    )
    return replace(reader, info=info, judge=judge)
