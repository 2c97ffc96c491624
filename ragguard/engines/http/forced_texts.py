"""Log-probabilities of given texts at llama.cpp's server, in one request for each: a grammar of token ids forces the
text, and the server shows the probabilities that the model gave the tokens before the grammar.

A grammar of letters would not do: the server then writes the text in other tokens, with another probability. One token
more is asked for than the text has, so that the end of the answer is there, too. A server from before such grammars
refuses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ragguard.engines.base import Prompt, as_turns
from ragguard.engines.chat_frames import LETTERS, QUESTION
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.replies import choices_of, optional, unexpected, usage_of
from ragguard.engines.labels import checked_logprob
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage

MAKE = "llamacpp"
"""The make of the server in its list of models."""
_MOST_TEXTS = 10_000


@dataclass(slots=True)
class ForcedTexts:
    """The way to ask one server for the log-probabilities of given texts.

    Args:
        client: The client of the server.
        model: The model's name there.
        limit_name: The name that the server has for the most tokens of a chat completion.
        extras: The parameters that switch thinking off.
        path: `chat`: the server applies its chat template itself; `completion`: it renders the prompt first.
    """

    client: HttpClient
    model: str
    limit_name: str = "max_tokens"
    extras: Mapping[str, Any] = field(default_factory=dict)
    path: Literal["chat", "completion"] = "chat"
    _ids: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    async def ids(self, text: str, deadline: float | None) -> tuple[int, ...]:
        """Returns the ids of a text as they follow a prompt: a word's tokens depend on the text before it."""
        if text not in self._ids:
            start = await self._rendered(QUESTION, deadline)
            before = await self._tokens(start, deadline)
            both = await self._tokens(start + text, deadline)
            follows = both[: len(before)] == before and len(both) > len(before)
            own = both[len(before) :] if follows else await self._tokens(text, deadline)
            if not own:
                raise EngineRejected(f"the model's tokenizer makes no tokens of {text!r}: give another text")
            if len(self._ids) >= _MOST_TEXTS:
                self._ids.clear()
            self._ids[text] = tuple(own)
        return self._ids[text]

    async def logprobs(
        self, prompt: Prompt, deadline: float | None
    ) -> tuple[tuple[float, ...], float | None, Usage]:
        """Returns the log-probabilities of the tokens of a prompt's text, that of the answer's end behind it (None if
        the server shows none), and the usage."""
        ids = await self.ids(prompt.text, deadline)
        body: dict[str, Any] = {
            "temperature": 0.0,
            "post_sampling_probs": False,
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in ids),
        }
        if self.path == "chat":
            body |= {
                "model": self.model,
                "messages": as_turns(prompt.messages),
                "logprobs": True,
                "top_logprobs": 1,
            }
            body |= {self.limit_name: len(ids) + 1, **self.extras}
            url = f"{self.client.address.base}/chat/completions"
            answer = await self.client.ask("/chat/completions", body, deadline=deadline)
            (choice, *_) = choices_of(answer, url)
            entries, usage = optional(choice, list, "logprobs", "content"), usage_of(answer, 1)
        else:
            body |= {"prompt": await self._rendered(prompt, deadline), "n_probs": 1, "cache_prompt": True}
            body["n_predict"] = len(ids) + 1
            url = f"{self.client.address.root}/completion"
            answer = await self.client.ask("/completion", body, deadline=deadline, root=True)
            entries = optional(answer, list, "completion_probabilities")
            read, wrote = (
                optional(answer, int, f"tokens_{what}") or 0 for what in ("evaluated", "predicted")
            )
            usage = Usage(1, 1, read, wrote)
        shown = entries or []
        if [optional(entry, int, "id") for entry in shown[: len(ids)]] != list(ids):
            raise unexpected(
                url, "the tokens that the grammar forces, each with its `id` and log-probability", shown
            )
        values = [checked_logprob(optional(entry, float, "logprob")) for entry in shown[: len(ids) + 1]]
        return tuple(values[: len(ids)]), values[len(ids)] if len(values) > len(ids) else None, usage

    async def _rendered(self, prompt: Prompt, deadline: float | None) -> str:
        """Returns a prompt in the server's chat template."""
        body = {"messages": as_turns(prompt.messages), **self.extras}
        return await self.client.field("/apply-template", body, str, "prompt", deadline)

    async def _tokens(self, text: str, deadline: float | None) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": True}
        return await self.client.field("/tokenize", body, list, "tokens", deadline)


async def find_forced_texts(
    client: HttpClient, model: str, limit_name: str, extras: Mapping[str, Any]
) -> ForcedTexts | None:
    """Returns the way that a llama.cpp server takes, by one short request each; None for a server from before grammars
    of token ids."""
    prompt = Prompt(QUESTION.messages, text=LETTERS[0])
    for path in ("chat", "completion"):
        forced = ForcedTexts(client, model, limit_name=limit_name, extras=extras, path=path)
        try:
            await forced.logprobs(prompt, None)
            return forced
        except (EngineRejected, EngineProtocolError):
            continue
    return None
