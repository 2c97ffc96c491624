"""VllmEngine: a vLLM server over HTTP, asked in as few requests as possible.

All prompts of a call go out as one list of rendered texts; `n` samples share a prefill; labels are exact through
`logprob_token_ids`. A server that does not know it is refused: chat completions serve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ragguard.engines.base import EngineInfo, Prompt, Sample
from ragguard.engines.http.completions import Completions
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.served import HttpEngine, ServedModel, served_model
from ragguard.engines.http.templates import Templates
from ragguard.engines.label_tokens import Asks
from ragguard.engines.requests.continuations import ContinuationRequest
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.requests.labels import LabelRequest
from ragguard.engines.requests.request import Request
from ragguard.engines.token_model import (
    EXACT_CAPABILITIES,
    ModelReport,
    NextTokens,
    ProfiledModel,
    Rendered,
    find_out,
)
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage

_MOST_TEXTS = 1024


class VllmEngine(HttpEngine):
    """The model that a vLLM server serves: exact label probabilities, and many prompts in one HTTP request.

    Args:
        url: The server's address, such as `http://host:8000/v1`, optionally with `#MODEL`.
        model: The model to ask for, where the server has several. None: the only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        headers: More headers of each request. None: those of RAGGUARD_HEADERS alone.
        timeout_s: How many seconds one HTTP request may take.
        connections: How many connections may be open at once.
    """

    async def look(self) -> ProfiledModel:
        """Finds out which model the server serves, and what it is."""
        return await look_at_vllm(self._client, await served_model(self._client, self._wanted))


async def look_at_vllm(client: HttpClient, served: ServedModel) -> ProfiledModel:
    """Learns the chat template of a model on a vLLM server, and finds out what the model is."""
    version = await _version(client)
    templates = Templates(client, served.id)
    await templates.learn()
    return await find_out(
        VllmModel(served, version, templates, Completions(client, served.id, templates.plain))
    )


class VllmModel:
    """A model on a vLLM server."""

    def __init__(
        self, served: ServedModel, version: str, templates: Templates, completions: Completions
    ) -> None:
        self.tokens = templates
        self._served, self._version, self._completions = served, version, completions
        self._texts: dict[tuple[int, ...], str | None] = {(): ""}

    async def report(self, question: Prompt, letters: Sequence[int]) -> ModelReport:
        """Finds out which of the features that only vLLM has this server takes, one at a time."""
        notes = [f"vLLM {self._version}" if self._version else "vLLM of an unknown version"]
        await self._check_exact(question, letters)
        served, capabilities = self._served, set(EXACT_CAPABILITIES)
        try:
            await self.first_words(question, priority=1)
            capabilities.add("priority")
        except EngineRejected:
            self._completions = replace(self._completions, takes_priority=False)
            notes.append("priorities are ignored; start the server with --scheduling-policy priority")
        info = EngineInfo(
            model=served.id,
            kind="vllm",
            fingerprint="",
            context=served.context,
            location=self._completions.client.address.base,
            capabilities=frozenset(capabilities),
            notes=tuple(notes),
        )
        return ModelReport(info, served.root)

    async def first_words(self, prompt: Prompt, *, priority: int = 0) -> str:
        """Returns how the most probable answer begins, special tokens included."""
        (rendered,) = await self.tokens.render([prompt])
        request = DrawRequest((prompt,), 1, 8, 0.0, priority=priority)
        return await self._completions.first_words(rendered, request)

    async def next_tokens(self, request: Request[Any], asks: Asks) -> NextTokens:
        """Asks for all tokens behind all prompts, each followed by the first tokens of labels, in one call."""
        texts = [await self._text(ask.after, request.deadline) for ask in asks]
        as_text = None not in texts
        rendered = await self.tokens.render(request.prompts, request.deadline, as_ids=not as_text)
        continued = [
            _continued(prompt, ask.after, text)
            for ask, text in zip(asks, texts, strict=True)
            for prompt in rendered
        ]
        tokens = sorted({token for ask in asks for token in ask.tokens})
        logprobs, usage = await self._completions.label_logprobs(continued, tokens, request)
        size = len(rendered)
        values = [
            logprobs[index * size : (index + 1) * size, np.searchsorted(tokens, ask.tokens)]
            for index, ask in enumerate(asks)
        ]
        return NextTokens(values, usage)

    async def draw(self, request: DrawRequest) -> tuple[list[list[Sample]], Usage]:
        """Draws all answers to all prompts in one call."""
        rendered = await self.tokens.render(request.prompts, request.deadline)
        return await self._completions.samples(rendered, request)

    async def text_logprobs(
        self, request: ContinuationRequest, texts: Sequence[tuple[int, ...]]
    ) -> tuple[list[list[float]], Usage]:
        """Asks for the log-probabilities of all prompts with their texts as token ids, and takes those of the texts."""
        rendered = await self.tokens.render(request.prompts, request.deadline, as_ids=True)
        rows = [(cast("list[int]", prompt), text) for prompt, text in zip(rendered, texts, strict=True)]
        return await self._completions.text_logprobs(rows, request)

    async def _check_exact(self, question: Prompt, tokens: Sequence[int]) -> None:
        """Raises EngineRejected where the server does not give the log-probabilities of any tokens."""
        (rendered,) = await self.tokens.render([question])
        try:
            await self._completions.label_logprobs([rendered], tokens, LabelRequest((question,), ()))
        except EngineProtocolError as error:
            raise EngineRejected(
                f"{error}; a newer vLLM gives the exact probability of each label"
            ) from error

    async def _text(self, ids: tuple[int, ...], deadline: float | None) -> str | None:
        """Returns a text that becomes exactly these tokens after a prompt, or None."""
        if ids not in self._texts:
            text = await self.tokens.text_of(ids, deadline)
            same = await self.tokens.continuations([text], deadline) == [ids]
            if len(self._texts) >= _MOST_TEXTS:
                self._texts = {(): ""}
            self._texts[ids] = text if same else None
        return self._texts[ids]


def _continued(prompt: Rendered, ids: Sequence[int], text: str | None) -> Rendered:
    """Returns a prompt with the first tokens of a label after it."""
    return [*prompt, *ids] if isinstance(prompt, list) else prompt + (text or "")


async def _version(client: HttpClient) -> str:
    try:
        answer = await client.get("/version", root=True)
    except (EngineRejected, EngineProtocolError):
        return ""
    return str(answer.get("version", "")) if isinstance(answer, Mapping) else ""
