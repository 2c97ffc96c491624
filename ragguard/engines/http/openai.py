"""OpenAIEngine: any server with OpenAI's chat completions, with the exactness that the server allows.

Where a server shows its most probable tokens, a label among them has its probability and any other label an upper
bound. Where it shows none, where the model thinks first, or where the abstention begins with the same token as "No",
probabilities are the shares of sampled answers, with their standard error. For OpenAI, llama.cpp's server, Ollama,
LM Studio, and vLLM models that think first.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ragguard.engines.base import EngineInfo, LabelProbs, Message, Prompt, Sample, Samples
from ragguard.engines.http.chat import Choice, Dialect, ask, spelled
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.served import served_model
from ragguard.engines.labels import ABSTENTION, CONTRASTS, upper_bound
from ragguard.engines.model_engine import ModelEngine
from ragguard.engines.profile import ENOUGH_MASS, weak_letters
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.thinking import LETTERS, QUESTION, SWITCH_OFF
from ragguard.engines.truncation import fit
from ragguard.errors import (
    EngineProtocolError,
    EngineRejected,
    InvalidInput,
    PromptTooLong,
)
from ragguard.records import Usage
from ragguard.runtime.parallel import in_parallel

_SWITCHES = (
    {"chat_template_kwargs": SWITCH_OFF},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "minimal"},
)
_LABEL_TOKENS = 8
_LOOK_TOKENS = 16
_CUTS = 4
_CHARACTERS_PER_TOKEN = 3.0
"""An estimate, lower than usual, for servers that tell the limit but not the prompt's length."""


@dataclass(frozen=True, slots=True)
class ChatServer:
    """What was found out about a server of chat completions."""

    dialect: Dialect
    thinks: bool
    ambiguous: frozenset[str]
    """Labels that a common word begins like, so that their first token does not tell them."""
    info: EngineInfo


class OpenAIEngine(ModelEngine[ChatServer]):
    """The model behind an OpenAI-compatible server, with as much exactness as the server shows.

    Label probabilities come from `top_logprobs`; a server without log-probabilities is sampled instead, and the
    result says so.

    Args:
        url: The server's address, such as `https://api.openai.com/v1` or `http://localhost:11434/v1#MODEL`.
        model: The model to ask for, where the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        at_once: How many requests may be in flight together.
        answers: How many answers are sampled for each prompt where probabilities must be estimated, 2 or more.
        thinking_tokens: How many tokens more an answer may take where a model thinks first and that cannot be
            switched off.
        notes: Remarks about the server that `ragguard doctor` and the engine's info repeat.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        at_once: int = 16,
        answers: int = 20,
        thinking_tokens: int = 1024,
        notes: Sequence[str] = (),
    ) -> None:
        if answers < 2:
            raise InvalidInput("answers", answers, "2 or more; 10 to 20 are usual")
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, connections=at_once)
        self._wanted = model or self._client.address.model
        self._at_once, self._answers, self._thinking_tokens = at_once, answers, thinking_tokens
        self._notes = tuple(notes)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def draws(self, request: DrawRequest, found: ChatServer) -> Samples:
        """Draws answers to each prompt, reasoning cut off; `priority` is not known to these servers."""
        began = time.monotonic()
        answers = await self._all(request, found)
        return Samples(
            [
                [Sample(c.text, tuple(token.logprob for token in c.tokens), c.finished) for c in one.choices]
                for one in answers
            ],
            _total(answers, began),
            _cuts(answers),
        )

    async def labels(self, request: LabelRequest, found: ChatServer) -> LabelProbs:
        """Returns the probability of each label, its upper bound, or its share of samples; the reply says which."""
        began = time.monotonic()
        if request.mode == "sequence" and found.dialect.top and not found.thinks:
            raise EngineRejected(
                f"{found.info.location} shows only the first token's probabilities, not those of a whole label: "
                "leave `mode` out, or serve the model with vLLM"
            )
        sampled = found.thinks or not found.dialect.top or not found.ambiguous.isdisjoint(request.labels)
        if sampled:
            # Seeded, so that the same question has the same answer wherever the server keeps seeds.
            drawn = DrawRequest(
                request.prompts, self._answers, _LABEL_TOKENS, 1.0, seed=0, deadline=request.deadline
            )
            read = self._estimated
        else:
            # Greedy, as some servers show the sampled token in place of the least probable of the list.
            drawn = DrawRequest(request.prompts, 1, 1, 0.0, deadline=request.deadline)
            read = self._listed
        answers = await self._all(drawn, found, top=not sampled)
        rows = [read(one.choices, request.labels, found.info) for one in answers]
        bound = np.array([row.bound for row in rows], dtype=np.bool_)
        return LabelProbs(
            np.array([row.p for row in rows], dtype=np.float64),
            exact=not sampled and not bound.any(),
            mode="sampled" if sampled else "first_token",
            usage=_total(answers, began),
            bound=bound if bound.any() else None,
            stderr=np.array([row.stderr for row in rows], dtype=np.float64) if sampled else None,
            truncated=_cuts(answers),
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    def _listed(self, choices: Sequence[Choice], names: tuple[str, ...], info: EngineInfo) -> _LabelRow:
        """Reads labels off the most probable first tokens of one choice."""
        (choice,) = choices
        if not choice.first:
            raise EngineProtocolError(
                f"{info.location} gave no log-probabilities, although it did at first; is it still the same server?"
            )
        tokens = [spelled(name, choice.first) for name in names]
        most = math.exp(upper_bound(token.logprob for token in choice.first))
        return _LabelRow(
            [most if token is None else math.exp(token.logprob) for token in tokens],
            # A first token that begins several labels says of each only how probable it is at most.
            [token is None or tokens.count(token) > 1 for token in tokens],
            [0.0] * len(names),
        )

    def _estimated(self, choices: Sequence[Choice], names: tuple[str, ...], info: EngineInfo) -> _LabelRow:
        """Counts labels among sampled choices."""
        # An answer cut short after its label is an answer; a thought cut short is none.
        answers = [choice.text for choice in choices if choice.text or choice.finished]
        if not answers:
            raise EngineProtocolError(
                f"{info.model} had not answered after {self._thinking_tokens} tokens of thought, {len(choices)} times: "
                "allow more `thinking_tokens`, or use a model whose thinking can be switched off"
            )
        said = [named(answer, names) for answer in answers]
        hits = np.array([said.count(name) for name in names])
        smooth = (hits + 1) / (len(answers) + 2)
        stderr = np.sqrt(smooth * (1 - smooth) / len(answers))
        return _LabelRow(list(hits / len(answers)), [False] * len(names), list(stderr))

    async def _all(
        self, request: DrawRequest, found: ChatServer, *, top: bool = False
    ) -> list[_PromptAnswer]:
        calls = [partial(self._one, request.about([prompt]), found, top) for prompt in request.prompts]
        return await in_parallel(calls, self._at_once)

    async def _one(self, request: DrawRequest, found: ChatServer, top: bool) -> _PromptAnswer:
        """Returns the choices for one prompt and the tokens cut from it. Only the server knows its tokens: what it
        says of a prompt that is too long is all there is to cut by."""
        limit = request.max_tokens + (self._thinking_tokens if found.thinks else 0)
        # Greedy answers are all the same one.
        distinct = 1 if request.temperature == 0 else request.n
        asked = replace(request, n=distinct, max_tokens=limit)
        cut = attempts = 0
        while True:
            try:
                choices, usage = await self._choices(asked, found, top)
                return _PromptAnswer(choices * (request.n // distinct), usage, cut)
            except PromptTooLong as error:
                attempts += 1
                (prompt,) = asked.prompts
                if not error.limit or not prompt.cuttable or attempts > _CUTS:
                    raise
                tokens = error.tokens or _characters(prompt) / _CHARACTERS_PER_TOKEN
                # A tenth more each time, as tokens are not spread evenly.
                density = tokens / max(1, _characters(prompt)) * (1 + attempts / 10)

                async def count(some: Sequence[Prompt], density: float = density) -> list[int]:
                    return [math.ceil(density * _characters(one)) for one in some]

                shorter, taken = await fit([prompt], count, error.limit - limit)
                asked = asked.about(shorter)
                cut += taken.get(0, 0)

    async def _choices(
        self, request: DrawRequest, found: ChatServer, top: bool
    ) -> tuple[list[Choice], Usage]:
        """Returns `n` choices for one prompt, from as many requests as the server needs for them."""
        one, n = partial(ask, self._client, found.info.model, found.dialect, top=top), request.n
        if n == 1 or found.dialect.many:
            choices, usage = await one(request)
            if len(choices) == n:
                return choices, usage
            raise EngineProtocolError(
                f"{found.info.location}: {n} choices were asked for and {len(choices)} came"
            )
        # The seeds are as far apart as those that a server gives to its own choices.
        seeds = [None if request.seed is None else request.seed + index for index in range(n)]
        calls = [partial(one, replace(request, n=1, seed=seed)) for seed in seeds]
        answers = await in_parallel(calls, self._at_once)
        return [choice for choices, _ in answers for choice in choices], sum(
            (usage for _, usage in answers), Usage()
        )

    async def look(self) -> ChatServer:
        """Finds out what the server takes and shows, and whether its model thinks first."""
        model = await served_model(self._client, self._wanted)
        dialect, choices = await self._accepted(model.id, Dialect())
        notes = list(self._notes)
        thinks = any(choice.thought for choice in choices)
        if thinks:
            for switch in _SWITCHES:
                silent, found = await self._accepted(model.id, replace(dialect, extras=switch))
                if silent.extras and not any(choice.thought for choice in found):
                    dialect, choices, thinks = silent, found, False
                    notes.append(f"the model thinks first: switched off by {', '.join(switch)}")
                    break
            else:
                notes.append(
                    "the model thinks first and cannot be told not to: answers are sampled, their reasoning cut off"
                )
        ambiguous: frozenset[str] = frozenset()
        if not dialect.top:
            notes.append(
                f"the server shows no log-probabilities: shares of {self._answers} sampled answers stand in for them; "
                "vLLM gives exact values"
            )
        elif not thinks:
            notes.append(
                f"the server shows the {dialect.top} likeliest tokens: a label outside them has only an upper bound; "
                "vLLM gives exact values"
            )
            first = choices[0].first
            mass = sum(math.exp(token.logprob) for token in (spelled(x, first) for x in LETTERS) if token)
            if mass < ENOUGH_MASS:
                notes.append(weak_letters(mass))
            if await self._collides(model.id, dialect):
                ambiguous = frozenset({ABSTENTION})
                notes.append(
                    f"{ABSTENTION} begins with the same token as a common word: its share of answers is sampled"
                )
        if not dialect.many:
            notes.append("the server gives one answer a request: n samples are n requests")
        top = dialect.top and not thinks
        thinking = self._thinking_tokens if thinks else 0
        known = {"top_logprobs", "sample_logprobs"} if top else set()
        known |= {name for name, has in (("n_samples", dialect.many), ("seed", dialect.seed)) if has}
        how = f"top{dialect.top}" if top else f"sampled{self._answers}"
        # A name such as "default" says little: the address tells two servers apart.
        server = hashlib.sha256(
            repr((self._client.address.base, sorted(dialect.extras))).encode()
        ).hexdigest()[:12]
        info = EngineInfo(
            model=model.id,
            kind="openai",
            fingerprint=f"openai/{model.id}/first_token/{how}/{server}",
            context=model.context,
            capabilities=frozenset(known),
            location=self._client.address.base,
            notes=tuple(notes),
            # What is not shown is sampled; so are labels that their first token does not tell apart.
            label_requests=1 if (top and not ambiguous) or dialect.many else self._answers,
            label_tokens=1 if top and not ambiguous else self._answers * (_LABEL_TOKENS + thinking),
            thinking_tokens=thinking,
        )
        return ChatServer(dialect, thinks, ambiguous, info)

    async def _accepted(self, model: str, dialect: Dialect) -> tuple[Dialect, list[Choice]]:
        """Asks the plain question without each parameter that the server refuses, until it answers."""
        while True:
            n = 2 if dialect.many else 1
            try:
                question = DrawRequest((QUESTION,), n, _LOOK_TOKENS, 1.0, seed=1)
                choices, _ = await ask(self._client, model, dialect, question, top=True)
            except EngineRejected as error:
                less = dialect.without(str(error))
                if less is None:
                    raise
                dialect = less
                continue
            if len(choices) < n:
                dialect = replace(dialect, many=False)
            if not choices[0].first and dialect.top:
                dialect = replace(dialect, top=0)
            return dialect, choices

    async def _collides(self, model: str, dialect: Dialect) -> bool:
        prompt = Prompt((Message("user", f"Repeat this and write nothing else: {ABSTENTION}"),))
        repeated = DrawRequest((prompt,), 1, _LABEL_TOKENS, 0.0)
        (choice, *_), _ = await ask(self._client, model, dialect, repeated, top=True)
        token = spelled(ABSTENTION, choice.first)
        start = token.text.strip(" ▁\n") if token else ""
        return bool(start) and any(word.startswith(start) for word in CONTRASTS)


class _LabelRow(NamedTuple):
    """What was read of the labels of one prompt."""

    p: list[float]
    bound: list[bool]
    stderr: list[float]


class _PromptAnswer(NamedTuple):
    """The choices for one prompt, what they cost, and the tokens that were cut from the prompt."""

    choices: list[Choice]
    usage: Usage
    cut: int


def named(answer: str, labels: Sequence[str]) -> str | None:
    """Returns the label that an answer gives, alone or before punctuation: "A firm" is not the label A."""
    bare = answer.strip().lstrip("*\"'`(").strip()
    for label in sorted(labels, key=len, reverse=True):
        flags = re.IGNORECASE if len(label) > 1 else 0
        if re.match(rf"{re.escape(label)}(?:$|\s*[.,:;)!*\"'`\n]|\s+[-–—]\s)", bare, flags):
            return label
    return None


def _characters(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages)


def _total(answers: Sequence[_PromptAnswer], began: float) -> Usage:
    return replace(sum((one.usage for one in answers), Usage()), seconds=time.monotonic() - began)


def _cuts(answers: Sequence[_PromptAnswer]) -> dict[int, int]:
    return {index: one.cut for index, one in enumerate(answers) if one.cut}
