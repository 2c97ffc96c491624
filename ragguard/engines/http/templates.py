"""A server's chat template, learned from the server, so that many conversations go out in one request.

vLLM takes many prompts at once as text, but templates only one conversation in each request. So the template is
learned once for each sequence of roles: the server templates marked messages, and the text of the result is split at
the marks. The result is used only where it gives the same tokens as the server does; else the server templates every
prompt, in one small request each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ragguard.engines.base import Message, Prompt, Role, folded
from ragguard.engines.chat_frames import SWITCH_OFF, SpecialTokens
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.replies import needed, optional
from ragguard.engines.token_model import Rendered
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.runtime.limiter import in_parallel

T = TypeVar("T")

# Made of letters and digits of any vocabulary, so that even a vocabulary of words returns them unchanged.
_MARKS = ("Q 7 Z 4 X", "X 4 Z 7 Q", "Z 7 X 4 Q", "Q 4 X 7 Z")
_PROOF = ("  Ada Berg runs it.\n\nWho?\n ", "\n A  B: 0, 5 ", " Oslo\t\n", " C ")
_AT_ONCE = 32


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
        self._shapes: dict[tuple[Role, ...], Shape | None] = {}
        self._ending_ids: dict[str, list[int]] = {"": []}

    async def learn(self) -> None:
        """Finds out if there is a template and if it takes a system turn."""
        try:
            await self._templated((Message("user", _MARKS[0]),), None)
        except EngineRejected as error:
            if "template" not in str(error).lower():
                raise
            self.plain = True
            return
        turns = (Message("system", _MARKS[0]), Message("user", _MARKS[1]))
        try:
            text = await self.text_of(await self._templated(turns, None))
            self.folds = _MARKS[0] not in text
        except EngineRejected:
            self.folds = True
        self.special = SpecialTokens(await self._shown_tokens())

    async def _shown_tokens(self) -> set[str]:
        """Returns the tokens that the server's template puts around messages, and those of its tokenizer's settings
        where it shows them (vLLM: `--enable-tokenizer-info-endpoint`)."""
        shown: set[str] = set()
        roles: tuple[Role, ...] = ("system", "user", "assistant", "user")
        turns = self._turns(tuple(Message(role, mark) for role, mark in zip(roles, _MARKS, strict=True)))
        with suppress(EngineRejected):
            body = self._conversation(turns) | {"return_token_strs": True}
            shown.update(map(str, await self._asked("/tokenize", body, list, "token_strs", None)))
        with suppress(EngineRejected, EngineProtocolError):
            settings = await self._client.get("/tokenizer_info", root=True)
            for token in (optional(settings, Mapping, "added_tokens_decoder") or {}).values():
                shown.add(str(token.get("content", "") if isinstance(token, Mapping) else token))
        return shown

    async def render(
        self, prompts: Sequence[Prompt], deadline: float | None = None, *, as_ids: bool = False
    ) -> list[Rendered]:
        """Returns each prompt as the model gets it, `ending` included: as text where all can be, else as ids."""
        conversations = [self._turns(prompt.messages) for prompt in prompts]
        shapes = [None if as_ids else await self.shape(_roles(one), deadline) for one in conversations]
        texts: list[Rendered] = [
            shape.render(messages) + self.ending
            for shape, messages in zip(shapes, conversations, strict=True)
            if shape is not None
        ]
        if len(texts) == len(conversations):
            return texts
        distinct = list(dict.fromkeys(conversations))
        ids = dict(zip(distinct, await self._in_parallel(distinct, deadline), strict=True))
        return [ids[messages] for messages in conversations]

    async def count(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, template and ending included; one small request for each."""
        conversations = [self._turns(prompt.messages) for prompt in prompts]
        return [len(ids) for ids in await self._in_parallel(conversations, deadline)]

    async def shape(self, roles: tuple[Role, ...], deadline: float | None = None) -> Shape | None:
        """Returns the learned shape of a sequence of roles; None where the server must template each prompt."""
        if self.plain:
            return _plain(roles)
        if roles not in self._shapes:
            self._shapes[roles] = await self._learned(roles, deadline)
        return self._shapes[roles]

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        """Returns the ids of a text that stands alone; a model without a template puts its first token before it."""
        body = {"prompt": text, "add_special_tokens": self.plain}
        return await self._asked("/tokenize", body, list, "tokens", deadline)

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        return await self._asked("/detokenize", {"tokens": list(ids)}, str, "prompt", deadline)

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        messages = (Message("user", _MARKS[0]),)
        (start,) = await self.render([Prompt(messages)], deadline)
        if isinstance(start, list):
            start = await self.text_of(start, deadline)
        before, *after = await in_parallel(
            [partial(self.tokens, start + text, deadline) for text in ("", *texts)], _AT_ONCE
        )
        found = []
        for text, ids in zip(texts, after, strict=True):
            if ids[: len(before)] != before:
                # The text's first token merges with the prompt's end; the tokens of the text alone are taken.
                ids = [*before, *await self.tokens(text, deadline)]
            if len(ids) == len(before):
                raise EngineRejected(f"the model's tokenizer knows nothing of {text!r}: use another label")
            found.append(tuple(ids[len(before) :]))
        return found

    async def _learned(self, roles: tuple[Role, ...], deadline: float | None) -> Shape | None:
        if len(roles) > len(_MARKS):
            return None
        marked = [Message(role, mark) for role, mark in zip(roles, _MARKS, strict=False)]
        text = await self.text_of(await self._templated(marked, deadline), deadline)
        pieces = []
        for mark in _MARKS[: len(roles)]:
            piece, found, text = text.partition(mark)
            if not found:
                return None
            pieces.append(piece)
        proof = [Message(role, content) for role, content in zip(roles, _PROOF, strict=False)]
        truth = await self._templated(proof, deadline)
        for trims in (False, True):
            shape = Shape((*pieces, text), trims)
            if await self.tokens(shape.render(proof), deadline) == truth:
                return shape
        return None

    async def _in_parallel(
        self, conversations: Sequence[tuple[Message, ...]], deadline: float | None
    ) -> list[list[int]]:
        if conversations and self.ending not in self._ending_ids:
            self._ending_ids[self.ending] = await self.tokens(self.ending, deadline)

        async def one(messages: tuple[Message, ...]) -> list[int]:
            if self.plain:
                return await self.tokens(_plain(_roles(messages)).render(messages), deadline)
            return await self._templated(messages, deadline)

        answers = await in_parallel([partial(one, messages) for messages in conversations], _AT_ONCE)
        return [[*ids, *self._ending_ids[self.ending]] for ids in answers]

    async def _templated(self, messages: Sequence[Message], deadline: float | None) -> list[int]:
        return await self._asked("/tokenize", self._conversation(messages), list, "tokens", deadline)

    def _conversation(self, messages: Sequence[Message]) -> dict[str, Any]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return {"messages": turns, "add_generation_prompt": True, "chat_template_kwargs": SWITCH_OFF}

    async def _asked(
        self, path: str, body: Mapping[str, Any], kind: type[T], name: str, deadline: float | None
    ) -> T:
        """Returns a field of the server's answer."""
        answer = await self._client.post(path, {"model": self._model, **body}, deadline=deadline, root=True)
        url = f"{self._client.address.root}{path}"
        return needed(answer, kind, name, url=url, expected=f"a reply with `{name}`")

    def _turns(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return folded(messages) if self.folds else messages


def _plain(roles: Sequence[Role]) -> Shape:
    return Shape(("", *["\n\n"] * (len(roles) - 1), "\n"), trims=False)


def _roles(messages: Sequence[Message]) -> tuple[Role, ...]:
    return tuple(message.role for message in messages)
