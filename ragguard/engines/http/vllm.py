"""A model on a vLLM server, asked through `/v1/completions`.

All prompts of a call go out in one request, as a list of rendered texts: the layers bound how many these are. `n`
samples share a prefill; labels are exact through `logprob_token_ids`. A server that does not know it is refused: chat
completions serve it. A missing field, a NaN or a wrong number of choices in a reply raises EngineProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ragguard.engines.base import EngineInfo, Prompt, Sample
from ragguard.engines.http.http_client import HttpClient, ServedModel
from ragguard.engines.http.replies import choices_of, needed, optional, usage_of
from ragguard.engines.http.templates import Templates
from ragguard.engines.labels import LabelRequest, checked_logprob
from ragguard.engines.requests import DrawRequest, PromptRequest
from ragguard.engines.token_model import EXACT_CAPABILITIES, Ids, ProfiledModel, Rendered, find_out
from ragguard.errors import EngineProtocolError, EngineRejected, EngineUnreachable, PromptTooLong
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

# A server's own defaults (`generation_config.json`) may cut the distribution; these leave it whole.
NEUTRAL = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_SEEDS = 2**62
_AT_ONCE = 32


async def look_at_vllm(client: HttpClient, served: ServedModel) -> ProfiledModel:
    """Learns the chat template of a model on a vLLM server, and finds out what the model is."""
    templates = Templates(client, served.id)
    await templates.learn()
    return await find_out(VllmModel(client, served, templates))


class VllmModel:
    """A model on a vLLM server, asked for completions in the form that the server takes."""

    def __init__(self, client: HttpClient, served: ServedModel, templates: Templates) -> None:
        self.tokens = templates
        self._client, self._served = client, served
        self._url = f"{client.address.base}/completions"
        self._takes_priority = True

    async def report(self, question: Prompt, letters: Ids) -> EngineInfo:
        """Finds out which of the features that only vLLM has this server takes, one at a time."""
        capabilities, notes = EXACT_CAPABILITIES, list(self._served.notes)
        try:
            await self.logprobs(LabelRequest((question,), ()), [()], letters)
        except EngineProtocolError as error:
            raise EngineRejected(
                f"{error}; a newer vLLM gives the exact probability of each label"
            ) from error
        try:
            await self.first_words(question, priority=1)
            capabilities |= {"priority"}
        except EngineRejected:
            self._takes_priority = False
            notes.append("priorities are ignored; start the server with --scheduling-policy priority")
        return EngineInfo(
            model=self._served.id,
            kind="vllm",
            fingerprint=self._served.root,
            context=self._served.context,
            location=self._client.address.base,
            capabilities=capabilities,
            notes=tuple(notes),
        )

    async def first_words(self, prompt: Prompt, *, priority: int = 0) -> str:
        """Returns how the most probable answer begins, special tokens included."""
        rendered = await self.tokens.render([prompt])
        request = DrawRequest((prompt,), 1, 8, 0.0, priority=priority)
        body = {"max_tokens": request.max_tokens, "temperature": 0.0, "skip_special_tokens": False}
        (choice,), _ = await self._ask(rendered, 1, body, request)
        return _text(choice, self._url)

    async def rows(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[list[int]]:
        """Returns the ids of each prompt; one small request for each."""
        texts = await self.tokens.render(prompts, deadline)
        calls = {text: partial(self.tokens.tokens, text, deadline) for text in texts}
        rows = dict(zip(calls, await in_parallel(calls.values(), _AT_ONCE), strict=True))
        return [rows[text] for text in texts]

    async def logprobs(
        self, request: PromptRequest, texts: Sequence[Ids], then: Ids
    ) -> tuple[list[list[float]], Usage]:
        """Asks for all prompts with their texts in one call; those with a text go out as token ids."""
        body: dict[str, Any] = {"max_tokens": 1, "temperature": 1.0}
        if then:
            body |= {"return_tokens_as_token_ids": True, "logprobs": 1, "logprob_token_ids": list(then)}
        if not any(texts):
            rendered = await self.tokens.render(request.prompts, request.deadline)
            choices, usage = await self._ask(rendered, 1, body, request)
            return [_next_logprobs(choice, then, self._url) for choice in choices], usage
        prompts = await self.rows(request.prompts, request.deadline)
        rows = [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
        choices, usage = await self._ask(rows, 1, body | {"prompt_logprobs": 0}, request)
        results = []
        for row, text, choice in zip(rows, texts, choices, strict=True):
            shown = optional(choice, list, "prompt_logprobs") or []
            own = zip(shown[len(row) - len(text) :], text, strict=False)
            values = [optional(entry, object, str(token), "logprob") for entry, token in own]
            if len(shown) != len(row) or None in values:
                raise EngineProtocolError(
                    f"{self._url}: the log-probabilities of the prompt were asked for and are missing"
                )
            after = _next_logprobs(choice, then, self._url) if then else []
            results.append([*map(checked_logprob, values), *after])
        return results, usage

    async def draw(self, request: DrawRequest) -> tuple[list[list[Sample]], Usage]:
        """Draws all answers to all prompts in one call."""
        n, max_tokens = request.n, request.max_tokens
        body: dict[str, Any] = {
            "n": n,
            "max_tokens": max_tokens,
            "temperature": request.temperature,
            "logprobs": 0,
        }
        if request.seed is not None:
            body["seed"] = request.seed % _SEEDS
        if self.tokens.plain:
            body["stop_token_ids"] = sorted(self.tokens.ends)
        rendered = await self.tokens.render(request.prompts, request.deadline)
        choices, usage = await self._ask(rendered, n, body, request)
        answers = [_sample(choice, self._url) for choice in choices]
        for answer in answers:
            if not answer.finished and len(answer.logprobs) < max_tokens:
                raise PromptTooLong(
                    f"{self._url}: a prompt left room for {len(answer.logprobs)} of {max_tokens} output tokens; "
                    "give fewer or shorter passages, or ask for fewer tokens"
                )
        return [answers[start : start + n] for start in range(0, len(answers), n)], usage

    async def _ask(
        self, prompts: Sequence[Rendered], n: int, body: Mapping[str, Any], request: PromptRequest
    ) -> tuple[list[Mapping[str, Any]], Usage]:
        """Returns the choices for all prompts in order."""
        # A chat template contains the model's first token; where there is none, the server must put it there.
        common = {**body, **NEUTRAL, "model": self._served.id, "add_special_tokens": self.tokens.plain}
        if request.priority and self._takes_priority:
            common["priority"] = request.priority
        asked = {**common, "prompt": list(prompts)}
        answer = await self._client.ask("/completions", asked, deadline=request.deadline)
        return _ordered(answer, len(prompts) * n, self._url), usage_of(answer, len(prompts))


def _ordered(answer: Any, expected: int, url: str) -> list[Mapping[str, Any]]:
    """Returns the choices of a reply in the order of their indices, as many as were asked for."""
    found = choices_of(answer, url)
    by_index = {index: choice for choice in found if isinstance(index := choice.get("index"), int)}
    if len(found) != expected or by_index.keys() != set(range(expected)):
        raise EngineProtocolError(
            f"{url}: {expected} choices were asked for and {len(found)} came, or misnumbered"
        )
    return [by_index[index] for index in range(expected)]


def _next_logprobs(choice: Mapping[str, Any], tokens: Ids, url: str) -> list[float]:
    """Returns the log-probabilities of these tokens as the next one."""
    (listed, *_) = optional(choice, list, "logprobs", "top_logprobs") or [None]
    names = [f"token_id:{token}" for token in tokens]
    values = [optional(listed, object, name) for name in names]
    if None in values:
        raise EngineProtocolError(
            f"{url}: the log-probability of {names[values.index(None)]} was asked for and is missing; does this vLLM "
            "know logprob_token_ids?"
        )
    return [checked_logprob(value) for value in values]


def _text(choice: Mapping[str, Any], url: str) -> str:
    return needed(choice, str, "text", url=url, expected="a choice with its `text`")


def _sample(choice: Mapping[str, Any], url: str) -> Sample:
    expected = "a choice with the log-probabilities of its tokens"
    given = needed(choice, list, "logprobs", "token_logprobs", url=url, expected=expected)
    values = [checked_logprob(value) for value in given]
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise EngineUnreachable(f"{url}: the server broke an answer off ({reason}); it may be shutting down")
    finished = reason == "stop"
    if finished and len(values) > 1:
        # The last token is the end-of-answer token, which is no part of the text.
        values.pop()
    return Sample(_text(choice, url).strip(), tuple(values), finished)
