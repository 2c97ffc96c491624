"""A server's chat template, learned from the server, so that many conversations go out in one request.

vLLM takes many prompts at once as text, but templates only one conversation in each request. So the template is
learned once for each sequence of roles: the server templates marked messages, and the text of the result is split at
the marks. The result is used only where it gives the same tokens as the server does; else the model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any, TypeVar

from ragguard.engines.base import Message, Prompt, Role, as_turns, folded
from ragguard.engines.chat_frames import LINE_ENDS, PLAIN_ANSWER, SWITCH_OFF, SpecialTokens, plain_text
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.replies import optional
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.runtime.limiter import in_parallel

T = TypeVar("T")

_PROOF = ("  Ada Berg runs it.\n\nWho?\n ", "\n A  B: 0, 5 ", " Oslo\t\n", " C ")
_AT_ONCE = 32


def _mark(at: int) -> str:
    """Returns a text of letters and digits that any vocabulary has, so that even one of words returns it unchanged."""
    return f"Q {at // 10} Z {at % 10} X"


@dataclass(frozen=True, slots=True)
class Shape:
    """The texts that the template puts around and between the messages of one sequence of roles."""

    pieces: tuple[str, ...]
    trims: bool

    def render(self, messages: Sequence[Message]) -> str:
        """Returns the text that the model gets for these messages."""
        parts = [self.pieces[0]]
        for message, piece in zip(messages, self.pieces[1:], strict=True):
            parts += (message.content.strip() if self.trims else message.content, piece)
        return "".join(parts)


class Templates:
    """A model's tokenizer and chat template, as learned from its server, with the methods of `Tokens`."""

    def __init__(self, client: HttpClient, model: str) -> None:
        self._client, self._model = client, model
        self.ending = ""
        self.special = SpecialTokens()
        self.plain = False
        """True where there is no template: the messages themselves are the prompt."""
        self.folds = False
        """True where the template knows no system turn: its text is put before the first user turn."""
        self.ends: frozenset[int] = frozenset()
        self._shapes: dict[tuple[Role, ...], Shape] = {}

    async def learn(self) -> None:
        """Finds out if there is a template, if it takes a system turn, and which special tokens the server shows.

        Raises EngineRejected where the template cannot be learned.
        """
        try:
            await self._templated([Message("user", _mark(0))])
        except EngineRejected as error:
            if "template" not in str(error).lower():
                raise
            self.plain = True
            before, *lines = [await self.tokens(PLAIN_ANSWER + end) for end in ("", *LINE_ENDS)]
            self.ends = frozenset(ids[-1] for ids in lines if ids[:-1] == before)
            return
        turns = Message("system", _mark(0)), Message("user", _mark(1))
        try:
            self.folds = _mark(0) not in await self.text_of(await self._templated(turns))
        except EngineRejected:
            self.folds = True
        await self._shape(self._turns(turns), None)
        self.special = SpecialTokens(await self._shown_tokens())
        with suppress(EngineRejected):  # a template that takes no answer does not show how one ends
            answered = await self._shape((Message("user", _mark(0)), Message("assistant", _mark(1))), None)
            self.ends = frozenset((await self.tokens(answered.pieces[-1].lstrip()))[:1])

    async def _shown_tokens(self) -> set[str]:
        """Returns the tokens that the server's template puts around messages, and those of its tokenizer's settings
        where it shows them (vLLM: `--enable-tokenizer-info-endpoint`)."""
        shown: set[str] = set()
        roles: tuple[Role, ...] = ("system", "user", "assistant", "user")
        turns = self._turns(tuple(Message(role, _mark(at)) for at, role in enumerate(roles)))
        with suppress(EngineRejected):
            body = self._conversation(turns) | {"return_token_strs": True}
            shown.update(map(str, await self._asked("/tokenize", body, list, "token_strs")))
        with suppress(EngineRejected, EngineProtocolError):
            settings = await self._client.ask("/tokenizer_info", root=True)
            for token in (optional(settings, Mapping, "added_tokens_decoder") or {}).values():
                shown.add(str(token.get("content", "") if isinstance(token, Mapping) else token))
        return shown

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[str]:
        """Returns each prompt as the model gets it, `ending` included."""
        texts = []
        for prompt in prompts:
            if self.plain:
                texts.append(plain_text(prompt.messages) + self.ending)
                continue
            messages = self._turns(prompt.messages)
            texts.append((await self._shape(messages, deadline)).render(messages) + self.ending)
        return texts

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        """Returns the ids of a text that stands alone; a model without a template puts its first token before it."""
        body = {"prompt": text, "add_special_tokens": self.plain}
        return await self._asked("/tokenize", body, list, "tokens", deadline)

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        return await self._asked("/detokenize", {"tokens": list(ids)}, str, "prompt", deadline)

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        (start,) = await self.render([Prompt((Message("user", _mark(0)),))], deadline)
        before, *after = await in_parallel(
            [partial(self.tokens, start + text, deadline) for text in ("", *texts)], _AT_ONCE
        )
        found = []
        for text, ids in zip(texts, after, strict=True):
            # Where the text's first token merges with the prompt's end, the tokens of the text alone are taken.
            merges = ids[: len(before)] != before
            own = await self.tokens(text, deadline) if merges else ids[len(before) :]
            if not own:
                raise EngineRejected(f"the model's tokenizer knows nothing of {text!r}: use another label")
            found.append(tuple(own))
        return found

    async def _shape(self, messages: Sequence[Message], deadline: float | None) -> Shape:
        """Returns the shape of the messages' roles, which is learned the first time."""
        roles = tuple(message.role for message in messages)
        if roles not in self._shapes:
            self._shapes[roles] = await self._learned(roles, deadline)
        return self._shapes[roles]

    async def _learned(self, roles: tuple[Role, ...], deadline: float | None) -> Shape:
        """Raises EngineRejected where a shape gives other tokens than the server."""
        marked = [Message(role, _mark(at)) for at, role in enumerate(roles)]
        text = await self.text_of(await self._templated(marked, deadline), deadline)
        pieces = []
        for message in marked:
            piece, _, text = text.partition(message.content)
            pieces.append(piece)
        proof = [Message(role, content) for role, content in zip(roles, cycle(_PROOF), strict=False)]
        truth = await self._templated(proof, deadline)
        for trims in (False, True):
            shape = Shape((*pieces, text), trims)
            if await self.tokens(shape.render(proof), deadline) == truth:
                return shape
        raise EngineRejected(
            f"the chat template of {self._model} changes or leaves out what stands in messages of the roles "
            f"{', '.join(roles)}, so that prompts cannot be written out here: its chat completions can be asked"
        )

    async def _templated(self, messages: Sequence[Message], deadline: float | None = None) -> list[int]:
        return await self._asked("/tokenize", self._conversation(messages), list, "tokens", deadline)

    def _conversation(self, messages: Sequence[Message]) -> dict[str, Any]:
        turns = as_turns(messages)
        return {"messages": turns, "add_generation_prompt": True, "chat_template_kwargs": SWITCH_OFF}

    async def _asked(
        self, path: str, body: Mapping[str, Any], kind: type[T], name: str, deadline: float | None = None
    ) -> T:
        """Returns a field of the server's answer about the model."""
        return await self._client.field(path, {"model": self._model, **body}, kind, name, deadline)

    def _turns(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return folded(messages) if self.folds else messages
