"""OpenAIEngine: any server with OpenAI's chat completions, with the exactness that the server allows.

Where a server shows its most probable tokens, a label among them has its probability and any other label an upper
bound. Where it shows none, where the model thinks first, or where the abstention begins with the same token as "No",
probabilities are the shares of sampled answers, with their standard error. This engine serves OpenAI, llama.cpp's
server, Ollama, LM Studio, and vLLM models that think first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

from ragguard.engines.base import EngineInfo, Message, Prompt
from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.chat import Choice, Dialect, ask, spelled
from ragguard.engines.http.chat_model import LABEL_TOKENS, ChatLimits, ChatModel
from ragguard.engines.http.client import HttpClient
from ragguard.engines.http.served import ServedModel, served_model
from ragguard.engines.labels import ABSTENTION, CONTRASTS
from ragguard.engines.layers.retry import Patience
from ragguard.engines.profile import ENOUGH_MASS, weak_letters
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.thinking import LETTERS, QUESTION, SWITCH_OFF
from ragguard.errors import EngineRejected, InvalidInput

_SWITCHES = (
    {"chat_template_kwargs": SWITCH_OFF},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "minimal"},
)
_LOOK_TOKENS = 16
_USUAL = ChatLimits()


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
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, connections=at_once)
        self._wanted = model or self._client.address.model
        self._limits, self._notes = ChatLimits(at_once, answers, thinking_tokens), tuple(notes)

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._client.address.base!r}, model={self._wanted!r})"

    async def look(self) -> ChatModel:
        """Finds out what the server takes and shows, and whether its model thinks first."""
        served = await served_model(self._client, self._wanted)
        return await look_at_chat(self._client, served, self._notes, limits=self._limits)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


async def look_at_chat(
    client: HttpClient,
    served: ServedModel,
    notes: Sequence[str] = (),
    *,
    limits: ChatLimits = _USUAL,
    patience: Patience | None = None,
) -> ChatModel:
    """Finds out what a server takes and shows, and whether its model thinks first. `notes` are put before its own."""
    said = list(notes)
    dialect, choices = await _accepted(client, served.id, Dialect())
    thinks = _thought(choices)
    if thinks:
        for switch in _SWITCHES:
            silent, found = await _accepted(client, served.id, replace(dialect, extras=switch))
            if silent.extras and not _thought(found):
                dialect, choices, thinks = silent, found, False
                said.append(f"the model thinks first: switched off by {', '.join(switch)}")
                break
        else:
            said.append(
                "the model thinks first and cannot be told not to: answers are sampled, their reasoning cut off"
            )
    ambiguous: frozenset[str] = frozenset()
    if not dialect.top:
        said.append(
            f"the server shows no log-probabilities: shares of {limits.answers} sampled answers stand in for them; "
            "vLLM gives exact values"
        )
    elif not thinks:
        said.append(
            f"the server shows the {dialect.top} likeliest tokens: a label outside them has only an upper bound; "
            "vLLM gives exact values"
        )
        first = choices[0].first
        mass = sum(math.exp(token.logprob) for token in (spelled(x, first) for x in LETTERS) if token)
        if mass < ENOUGH_MASS:
            said.append(weak_letters(mass))
        if await _collides(client, served.id, dialect):
            ambiguous = frozenset({ABSTENTION})
            said.append(
                f"{ABSTENTION} begins with the same token as a common word: its share of answers is sampled"
            )
    if not dialect.many:
        said.append("the server gives one answer a request: n samples are n requests")
    shown = bool(dialect.top) and not thinks
    thinking = limits.thinking_tokens if thinks else 0
    has = {
        "top_logprobs": shown,
        "sample_logprobs": shown,
        "n_samples": dialect.many,
        "seed": dialect.seed,
    }
    how = f"top{dialect.top}" if shown else f"sampled{limits.answers}"
    # Servers may use one name such as "default", so the address is added to tell them apart.
    server = hashlib.sha256(repr((client.address.base, sorted(dialect.extras))).encode()).hexdigest()[:12]
    # Labels are sampled where the server shows no probabilities or their first tokens are equal.
    listed = shown and not ambiguous
    info = EngineInfo(
        model=served.id,
        kind="openai",
        fingerprint=f"openai/{served.id}/first_token/{how}/{server}",
        context=served.context,
        capabilities=frozenset(name for name, there in has.items() if there),
        location=client.address.base,
        notes=tuple(said),
        label_requests=1 if listed or dialect.many else limits.answers,
        label_tokens=1 if listed else limits.answers * (LABEL_TOKENS + thinking),
        thinking_tokens=thinking,
    )
    return ChatModel(
        client=client, info=info, dialect=dialect, thinks=thinks, ambiguous=ambiguous, limits=limits, patience=patience
    )  # fmt: skip


async def _accepted(client: HttpClient, model: str, dialect: Dialect) -> tuple[Dialect, list[Choice]]:
    """Asks the plain question without each parameter that the server refuses, until it answers."""
    while True:
        n = 2 if dialect.many else 1
        try:
            question = DrawRequest((QUESTION,), n, _LOOK_TOKENS, 1.0, seed=1)
            choices, _ = await ask(client, model, dialect, question, top=True)
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


async def _collides(client: HttpClient, model: str, dialect: Dialect) -> bool:
    """True where the abstention begins with the same token as a common word."""
    prompt = Prompt((Message("user", f"Repeat this and write nothing else: {ABSTENTION}"),))
    repeated = DrawRequest((prompt,), 1, LABEL_TOKENS, 0.0)
    (choice, *_), _ = await ask(client, model, dialect, repeated, top=True)
    token = spelled(ABSTENTION, choice.first)
    start = token.text.strip(" ▁\n") if token else ""
    return bool(start) and any(word.startswith(start) for word in CONTRASTS)


def _thought(choices: Sequence[Choice]) -> bool:
    return any(choice.thought for choice in choices)
