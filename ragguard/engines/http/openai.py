"""The model behind any server with OpenAI's chat completions, with the exactness that the server allows.

Where a server shows its most probable tokens, a label among them has its probability and any other label an upper
bound. Where it shows none, where the model thinks first, or where the abstention begins with the same token as "No",
probabilities are the shares of sampled answers, with their standard error. So are served OpenAI, llama.cpp's server,
Ollama, LM Studio, and vLLM models that think first.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from ragguard.engines.base import EngineInfo, Prompt
from ragguard.engines.chat_frames import SWITCH_OFF
from ragguard.engines.http.chat import (
    LABEL_TOKENS,
    Choice,
    Dialect,
    accepted,
    ask,
    collides,
    estimated,
    listed,
    names_choices,
)
from ragguard.engines.http.forced_texts import MAKE, ForcedTexts, find_forced_texts
from ragguard.engines.http.http_client import HttpClient, ServedModel
from ragguard.engines.labels import ABSTENTION, LabelRequest
from ragguard.engines.requests import ContinuationRequest, DrawRequest, Reply, Request, Value, samples_value
from ragguard.engines.truncation import asked_shorter
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

ANSWERS = 20
"""The answers that are sampled for each prompt where probabilities must be estimated."""
THINKING_TOKENS = 1024
"""The tokens that an answer may take beyond its own where a model thinks first and that cannot be switched off."""
_AT_ONCE = 16
"""The most requests of one call that are in flight."""
_SWITCHES = (
    {"chat_template_kwargs": SWITCH_OFF},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "minimal"},
)


async def look_at_chat(client: HttpClient, served: ServedModel, notes: Sequence[str] = ()) -> ChatModel:
    """Finds out what a server takes and shows, and whether its model thinks first. `notes` are put before its own."""
    said = [*notes, *served.notes]
    dialect, thinks = await accepted(client, served.id, Dialect())
    for switch in _SWITCHES if thinks else ():
        silent, still_thinks = await accepted(client, served.id, replace(dialect, extras=switch))
        if silent.extras and not still_thinks:
            dialect, thinks = silent, False
            said.append(f"the model thinks before it answers, which is switched off with {', '.join(switch)}")
            break
    if thinks:
        said.append(
            "the model thinks before it answers, which cannot be switched off: answers are sampled, and their "
            "reasoning is cut off"
        )
    is_ambiguous = False
    if not dialect.top:
        said.append(
            f"the server shows no log-probabilities: shares of {ANSWERS} sampled answers stand in for them; vLLM "
            "gives exact values"
        )
    elif not thinks:
        said.append(
            f"the server shows the {dialect.top} likeliest tokens: a label outside them has only an upper bound; "
            "vLLM gives exact values"
        )
        is_ambiguous = await collides(client, served.id, dialect)
        if is_ambiguous:
            said.append(
                f"{ABSTENTION} begins with the same token as a common word: its share of answers is sampled"
            )
    if dialect.refusal:
        said.append(
            f"the server refused a whole request and named no parameter ({dialect.refusal}): it is asked with only "
            f"model, messages and {dialect.limit_name}, without log-probabilities, temperature, seed and n"
        )
    elif not dialect.many:
        said.append("the server gives one answer a request: n samples are n requests")
    shown = bool(dialect.top) and not thinks
    forced = None
    if shown and served.owner == MAKE:
        forced = await find_forced_texts(client, served.id, dialect.limit_name, dialect.extras)
        if forced is None:
            said.append(
                "this llama.cpp knows no grammar of token ids, so it cannot give the probability of a text: "
                "likelihood and credit need a newer one"
            )
    thinking = THINKING_TOKENS if thinks else 0
    has = {
        "top_logprobs": shown,
        "sample_logprobs": shown,
        "n_samples": dialect.many,
        "seed": dialect.seed,
        "continuations": forced is not None,
    }
    how = f"top{dialect.top}" if shown else f"sampled{ANSWERS}"
    # Servers may use one name such as "default", so the address is added to tell them apart.
    server = hashlib.sha256(repr((client.address.base, sorted(dialect.extras))).encode()).hexdigest()[:12]
    # Labels are sampled where the server shows no probabilities or their first tokens are equal.
    is_listed = shown and not is_ambiguous
    info = EngineInfo(
        model=served.id,
        kind="openai",
        fingerprint=f"openai/{served.id}/first_token/{how}/{server}",
        context=served.context,
        capabilities=frozenset(name for name, there in has.items() if there),
        location=client.address.base,
        notes=tuple(said),
        label_requests=1 if is_listed or dialect.many else ANSWERS,
        label_tokens=1 if is_listed else ANSWERS * (LABEL_TOKENS + thinking),
        thinking_tokens=thinking,
    )
    return ChatModel(client, info, dialect, is_ambiguous=is_ambiguous, forced=forced)


@dataclass(slots=True)
class ChatModel:
    """A `FoundModel`: answers requests by a server's chat completions, with the features that were found of it."""

    client: HttpClient
    info: EngineInfo
    dialect: Dialect
    is_ambiguous: bool
    """True where the abstention shares its first token with a common word, so that this token cannot identify it."""
    forced: ForcedTexts | None = None
    """The way to ask for the probability of a given text; None for a server that has none."""
    most_choices: int = sys.maxsize
    """The most choices that the server gives for one request, which shows only as it refuses more."""

    async def answer(self, request: Request) -> Reply:
        """Answers a request: with sampled answers, reasoning cut off, or the probability of each label, its upper bound
        or its share of samples. Refuses given texts, unless the server is a llama.cpp that can be made to write them:
        chat completions show only what the model writes."""
        if isinstance(request, LabelRequest):
            replies, values = await self._labels(request)
        elif isinstance(request, DrawRequest):
            replies = await self._answers(request)
            values = [
                (samples_value([choice.sample for choice in choices]) * (request.n // len(choices)),)
                for (choices, _), _ in replies
            ]
        elif self.forced is not None and isinstance(request, ContinuationRequest):
            return await self._texts(self.forced, request)
        else:
            raise EngineRejected(
                f"{self.info.model} at {self.info.location} cannot give the probability of a text, since chat "
                "completions show the probabilities of only what the model writes: use smol, gguf:FILE, hf:MODEL, a "
                "vLLM server or a llama.cpp server of 2026"
            )
        rows = [(*value, cut) for value, (_, cut) in zip(values, replies, strict=True)]
        return Reply(rows, sum((usage for (_, usage), _ in replies), Usage()))

    async def _texts(self, forced: ForcedTexts, request: ContinuationRequest) -> Reply:
        """Returns the log-probabilities of each prompt's text, from one request each."""
        room = 1 + max([len(await forced.ids(prompt.text, request.deadline)) for prompt in request.prompts])
        logprobs_of = partial(forced.logprobs, deadline=request.deadline)
        replies = await in_parallel(
            [partial(asked_shorter, prompt, logprobs_of, room) for prompt in request.prompts], _AT_ONCE
        )
        values = [(logprobs, end, cut) for (logprobs, end, _), cut in replies]
        return Reply(values, sum((usage for (_, _, usage), _ in replies), Usage()))

    async def _labels(self, request: LabelRequest) -> tuple[list[_PromptAnswer], list[Value]]:
        shows = "top_logprobs" in self.info.capabilities
        if request.mode == "sequence" and shows:
            raise EngineRejected(
                f"{self.info.location} shows only the first token's probabilities, not those of a whole label: "
                "leave `mode` out, or serve the model with vLLM"
            )
        if shows and not (self.is_ambiguous and ABSTENTION in request.labels):
            # Beside a greedy token, as some servers show the sampled token in place of the least probable of the list.
            drawn = _drawn(request, n=1, max_tokens=1, temperature=0.0)
            found = await self._answers(drawn, top=True)
            rows = [listed(choice, request.labels) for ((choice,), _), _ in found]
            return found, [(p, not any(bound), "first_token", bound, None) for p, bound in rows]
        # Samples are seeded, so that the same question has the same answer wherever the server keeps seeds.
        drawn = _drawn(request, n=ANSWERS, max_tokens=LABEL_TOKENS, temperature=1.0, seed=0)
        found = await self._answers(drawn)
        shares = [estimated(self._said(choices), request.labels) for (choices, _), _ in found]
        return found, [(p, False, "sampled", None, stderr) for p, stderr in shares]

    def _said(self, choices: Sequence[Choice]) -> list[str]:
        """Returns the answers. A text that was cut short after its label counts as an answer, a thought that was cut
        short does not."""
        said = [choice.sample.text for choice in choices if choice.sample.text or choice.sample.finished]
        if not said:
            raise EngineProtocolError(
                f"{self.info.model} had not answered after {THINKING_TOKENS} tokens of thought, {len(choices)} times: "
                "use a model whose thinking can be switched off"
            )
        return said

    def _answers(
        self, request: DrawRequest, *, top: bool = False
    ) -> Coroutine[Any, Any, list[_PromptAnswer]]:
        """Returns the choices for each prompt. Only the server can count its tokens, so a prompt that is too long is
        cut by the numbers in the server's error."""
        limit = request.max_tokens + self.info.thinking_tokens
        # All greedy answers are equal.
        asked = replace(request, n=1 if request.temperature == 0 else request.n, max_tokens=limit)

        def choices(prompt: Prompt) -> Coroutine[Any, Any, tuple[list[Choice], Usage]]:
            return self._choices(asked.with_prompts([prompt]), top)

        calls = [partial(asked_shorter, prompt, choices, limit) for prompt in request.prompts]
        return in_parallel(calls, _AT_ONCE)

    async def _choices(self, request: DrawRequest, top: bool) -> tuple[list[Choice], Usage]:
        """Returns `n` choices for one prompt, from as many requests as the server needs for them."""
        size = min(request.n, self.most_choices) if self.dialect.many else 1
        calls = []
        for start in range(0, request.n, size):
            # The seeds are as far apart as those that a server gives to its own choices.
            seed = None if request.seed is None else request.seed + start
            part = replace(request, n=min(size, request.n - start), seed=seed)
            calls.append(partial(ask, self.client, self.info.model, self.dialect, part, top=top))
        try:
            found = [await calls[0]()] if len(calls) == 1 else await in_parallel(calls, _AT_ONCE)
        except EngineRejected as error:
            if size == 1 or not names_choices(str(error)):
                raise
            self.most_choices = min(self.most_choices, size // 2)
            return await self._choices(request, top)
        choices = [choice for some, _ in found for choice in some]
        if len(choices) != request.n:
            raise EngineProtocolError(
                f"{self.info.location}: {request.n} choices were asked for and {len(choices)} came"
            )
        return choices, sum((usage for _, usage in found), Usage())


_PromptAnswer: TypeAlias = tuple[tuple[list[Choice], Usage], int]
"""The choices for one prompt, what they cost, and the tokens that were cut from the prompt."""


def _drawn(request: LabelRequest, **how: Any) -> DrawRequest:
    """Returns a request for answers to the prompts of another request."""
    return DrawRequest(request.prompts, deadline=request.deadline, priority=request.priority, **how)
