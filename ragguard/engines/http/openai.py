"""OpenAIEngine: any server that speaks OpenAI's chat completions, as far as it goes.

Where a server shows its most probable tokens, a label among them has its probability and any other
an upper bound. Where it shows none, thinks first, or cannot tell the abstention from "No" by its
first token, probabilities are the shares of sampled answers, with their standard error. Made for
OpenAI, llama.cpp's server, Ollama, LM Studio, and vLLM models that cannot be asked otherwise.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ragguard.engines.base import EngineInfo, LabelProbs, Message, Prompt, Sample, Samples
from ragguard.engines.http.chat import Choice, Dialect, ask, spelled
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.completions import upper_bound
from ragguard.engines.http.served import names_nothing_served, served_model
from ragguard.engines.labels import ABSTENTION, CONTRASTS
from ragguard.engines.lazy import Lazy
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.verbs import ModelEngine
from ragguard.engines.thinking import ENOUGH_MASS, LETTERS, QUESTION, SWITCH_OFF
from ragguard.engines.truncation import fit
from ragguard.errors import (
    EngineProtocolError,
    EngineRejected,
    EngineUnreachable,
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
"""Where the server tells the limit but not the prompt's length: fewer than usual, to be safe."""


@dataclass(frozen=True, slots=True)
class _Server:
    dialect: Dialect
    thinks: bool
    ambiguous: frozenset[str]
    """Labels whose first token is no sign of them."""
    info: EngineInfo


class OpenAIEngine(ModelEngine):
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
        self._client = HttpClient(url, api_key, timeout_s, connections=at_once)
        self._wanted = model or self._client.address.model
        self._at_once, self._answers, self._thinking_tokens = at_once, answers, thinking_tokens
        self._notes = tuple(notes)
        self._server = Lazy(self._look)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def draws(self, request: DrawRequest) -> Samples:
        """Draws answers to each prompt, reasoning cut off; `priority` is not known to these servers."""
        began = time.monotonic()
        server = await self._server.get(request.deadline)

        async def one(prompt: Prompt) -> tuple[list[Sample], Usage, int]:
            choices, usage, cut = await self._choices(
                server, prompt, request.n, request.max_tokens, request.temperature, request.seed,
                request.deadline,
            )  # fmt: skip
            samples = [
                Sample(c.text, tuple(token.logprob for token in c.tokens), c.finished) for c in choices
            ]
            return samples, usage, cut

        found = await in_parallel([partial(one, prompt) for prompt in request.prompts], self._at_once)
        return Samples(
            [samples for samples, _, _ in found],
            replace(_total([usage for _, usage, _ in found]), seconds=time.monotonic() - began),
            {index: cut for index, (_, _, cut) in enumerate(found) if cut},
        )

    async def labels(self, request: LabelRequest) -> LabelProbs:
        """Gives the probability of each label, or its bound, or its share of sampled answers: the result says
        which."""
        names = request.labels
        began = time.monotonic()
        server = await self._server.get(request.deadline)
        if request.mode == "sequence" and server.dialect.top and not server.thinks:
            raise EngineRejected(
                f"{server.info.location} shows only the first token's probabilities, not those of a whole label: "
                "leave `mode` out, or serve the model with vLLM"
            )
        sampled = server.thinks or not server.dialect.top or not server.ambiguous.isdisjoint(names)
        one = self._estimated if sampled else self._listed
        found = await in_parallel(
            [partial(one, server, prompt, names, request.deadline) for prompt in request.prompts],
            self._at_once,
        )
        bound = np.array([row.bound for row in found], dtype=np.bool_)
        return LabelProbs(
            np.array([row.p for row in found], dtype=np.float64),
            exact=not sampled and not bound.any(),
            mode="sampled" if sampled else "first_token",
            usage=replace(_total([row.usage for row in found]), seconds=time.monotonic() - began),
            bound=bound if bound.any() else None,
            stderr=np.array([row.stderr for row in found], dtype=np.float64) if sampled else None,
            truncated={index: row.cut for index, row in enumerate(found) if row.cut},
        )

    async def info(self) -> EngineInfo:
        """What the server serves and shows; asks it the first time."""
        return (await self._server.get()).info

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _listed(
        self, server: _Server, prompt: Prompt, names: tuple[str, ...], deadline: float | None
    ) -> _Row:
        # Greedy, as some servers show the sampled token in place of the least probable of the list.
        (choice,), usage, cut = await self._choices(server, prompt, 1, 1, 0.0, None, deadline, top=True)
        if not choice.first:
            raise EngineProtocolError(
                f"{server.info.location} gave no log-probabilities, although it did at first; "
                "is it still the same server?"
            )
        tokens = [spelled(name, choice.first) for name in names]
        most = math.exp(upper_bound(token.logprob for token in choice.first))
        return _Row(
            [most if token is None else math.exp(token.logprob) for token in tokens],
            # A first token that begins several labels says of each only how probable it is at most.
            [token is None or tokens.count(token) > 1 for token in tokens],
            [0.0] * len(names),
            usage,
            cut=cut,
        )

    async def _estimated(
        self, server: _Server, prompt: Prompt, names: tuple[str, ...], deadline: float | None
    ) -> _Row:
        n = self._answers
        # Seeded, so that the same question has the same answer wherever the server keeps seeds.
        choices, usage, cut = await self._choices(server, prompt, n, _LABEL_TOKENS, 1.0, 0, deadline)
        # An answer cut short after its label is an answer; a thought cut short is none.
        answers = [choice.text for choice in choices if choice.text or choice.finished]
        if not answers:
            raise EngineProtocolError(
                f"{server.info.model} had not answered after {self._thinking_tokens} tokens of thought, {n} times: "
                "allow more `thinking_tokens`, or use a model whose thinking can be switched off"
            )
        said = [named(answer, names) for answer in answers]
        hits = np.array([said.count(name) for name in names])
        smooth = (hits + 1) / (len(answers) + 2)
        stderr = np.sqrt(smooth * (1 - smooth) / len(answers))
        return _Row(list(hits / len(answers)), [False] * len(names), list(stderr), usage, cut=cut)

    async def _choices(
        self,
        server: _Server,
        prompt: Prompt,
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        deadline: float | None,
        *,
        top: bool = False,
    ) -> tuple[list[Choice], Usage, int]:
        """`n` choices for one prompt and the tokens cut from it. The server alone knows its tokens: what it
        says of a prompt that is too long is all there is to cut by."""
        budget = max_tokens + (self._thinking_tokens if server.thinks else 0)
        distinct = 1 if temperature == 0 else n
        cut = attempts = 0
        while True:
            try:
                choices, usage = await self._n_choices(
                    server, prompt, distinct, budget, temperature, seed, deadline, top
                )
                return choices * (n // distinct), usage, cut
            except PromptTooLong as error:
                attempts += 1
                if not error.limit or not prompt.cuttable or attempts > _CUTS:
                    raise
                tokens = error.tokens or _characters(prompt) / _CHARACTERS_PER_TOKEN
                # A tenth more each time, as tokens are not spread evenly.
                density = tokens / max(1, _characters(prompt)) * (1 + attempts / 10)

                async def count(some: Sequence[Prompt], density: float = density) -> list[int]:
                    return [math.ceil(density * _characters(one)) for one in some]

                (prompt,), taken = await fit([prompt], count, error.limit - budget)
                cut += taken.get(0, 0)
            except EngineUnreachable:
                self._server.forget()
                raise
            except EngineRejected as error:
                # It was started anew, with another model, unseen between two calls.
                if names_nothing_served(error):
                    self._server.forget()
                raise

    async def _n_choices(
        self,
        server: _Server,
        prompt: Prompt,
        n: int,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        deadline: float | None,
        top: bool,
    ) -> tuple[list[Choice], Usage]:
        one = partial(
            ask, self._client, server.info.model, server.dialect, prompt,
            max_tokens=max_tokens, temperature=temperature, top=top, deadline=deadline,
        )  # fmt: skip
        if n == 1 or server.dialect.many:
            choices, usage = await one(n=n, seed=seed)
            if len(choices) == n:
                return choices, usage
            raise EngineProtocolError(
                f"{server.info.location}: {n} choices were asked for and {len(choices)} came"
            )
        # The seeds are as far apart as those that a server gives to its own choices.
        calls = [partial(one, seed=None if seed is None else seed + index) for index in range(n)]
        found = await in_parallel(calls, self._at_once)
        return [choice for choices, _ in found for choice in choices], _total([usage for _, usage in found])

    async def _look(self) -> _Server:
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
                notes.append(
                    f"only {mass:.0%} of its probability is on the two letters of a plain A/B question"
                )
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
        place = hashlib.sha256(
            repr((self._client.address.base, sorted(dialect.extras))).encode()
        ).hexdigest()[:12]
        info = EngineInfo(
            model=model.id,
            kind="openai",
            fingerprint=f"openai/{model.id}/first_token/{how}/{place}",
            context=model.context,
            capabilities=frozenset(known),
            location=self._client.address.base,
            notes=tuple(notes),
            # What is not shown is sampled; so are labels that their first token does not tell apart.
            label_requests=1 if (top and not ambiguous) or dialect.many else self._answers,
            label_tokens=1 if top and not ambiguous else self._answers * (_LABEL_TOKENS + thinking),
            thinking_tokens=thinking,
        )
        return _Server(dialect, thinks, ambiguous, info)

    async def _accepted(self, model: str, dialect: Dialect) -> tuple[Dialect, list[Choice]]:
        """Asks the plain question, leaving out what the server refuses, until it answers."""
        while True:
            n = 2 if dialect.many else 1
            try:
                choices, _ = await ask(
                    self._client, model, dialect, QUESTION, max_tokens=_LOOK_TOKENS, n=n, seed=1, top=True
                )
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
        (choice, *_), _ = await ask(
            self._client, model, dialect, prompt, max_tokens=_LABEL_TOKENS, temperature=0.0, top=True
        )
        token = spelled(ABSTENTION, choice.first)
        start = token.text.strip(" ▁\n") if token else ""
        return bool(start) and any(word.startswith(start) for word in CONTRASTS)


@dataclass(frozen=True, slots=True)
class _Row:
    p: list[float]
    bound: list[bool]
    stderr: list[float]
    usage: Usage
    cut: int


def named(answer: str, labels: Sequence[str]) -> str | None:
    """The label that an answer gives: alone, or before a stop. "A firm" is not the label A."""
    bare = answer.strip().lstrip("*\"'`(").strip()
    for label in sorted(labels, key=len, reverse=True):
        flags = re.IGNORECASE if len(label) > 1 else 0
        if re.match(rf"{re.escape(label)}(?:$|\s*[.,:;)!*\"'`\n]|\s+[-–—]\s)", bare, flags):
            return label
    return None


def _characters(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages)


def _total(usages: Sequence[Usage]) -> Usage:
    return sum(usages, Usage())
