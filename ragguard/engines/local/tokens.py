"""A Hugging Face tokenizer in this process, as transformers and in-process vLLM hold one.

Follows the same rules as `http/templates.py`, which learns a template from its server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from ragguard.engines.base import Message, Prompt, folded
from ragguard.engines.thinking import QUESTION, SWITCH_OFF
from ragguard.errors import InvalidInput

_SYSTEM_MARK = "Q 7 Z 4 X"


class HfTokens:
    """A Hugging Face tokenizer and its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Rust tokenizers refuse to be used while another thread sets their options.
        self._lock = threading.Lock()
        self.plain = not getattr(tokenizer, "chat_template", None)
        self.folds = not self.plain and self._loses_system()
        self.ending = ""

    async def render(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[str]:
        """Returns each prompt as the model gets it, `ending` included."""
        return [self._text(prompt) for prompt in prompts]

    async def rows(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Returns the token ids of each prompt, from a thread: many long passages would hold an event loop up."""
        return await asyncio.to_thread(lambda: self._encode([self._text(prompt) for prompt in prompts]))

    async def count(self, prompts: Sequence[Prompt], deadline: float | None = None) -> list[int]:
        """Returns the tokens of each prompt, template and ending included."""
        return [len(row) for row in await self.rows(prompts)]

    async def continuations(
        self, texts: Sequence[str], deadline: float | None = None
    ) -> list[tuple[int, ...]]:
        """Returns the ids of texts as they follow a prompt: a word's tokens depend on the text before it."""
        start = self._text(QUESTION)
        before, *after = self._encode([start, *(start + text for text in texts)])
        found = []
        for text, ids in zip(texts, after, strict=True):
            rest = ids[len(before) :] if ids[: len(before)] == before else await self.tokens(text)
            if not rest:
                raise InvalidInput("labels", text, "texts of which the model's tokenizer makes tokens")
            found.append(tuple(rest))
        return found

    async def tokens(self, text: str, deadline: float | None = None) -> list[int]:
        """Returns the ids of a text that stands alone."""
        with self._lock:
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    async def text_of(self, ids: Sequence[int], deadline: float | None = None) -> str:
        """Returns the text of ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of an answer, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def _text(self, prompt: Prompt) -> str:
        if self.plain:
            return "\n\n".join(message.content for message in prompt.messages) + "\n" + self.ending
        messages = folded(prompt.messages) if self.folds else prompt.messages
        return self._templated(messages) + self.ending

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # An unpaired surrogate is no text that a tokenizer takes; it becomes a question mark.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        with self._lock:
            return [list(ids) for ids in self._tokenizer(clean, add_special_tokens=self.plain)["input_ids"]]

    def _templated(self, messages: Sequence[Message]) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return str(
            self._tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=True, **SWITCH_OFF
            )
        )

    def _loses_system(self) -> bool:
        from jinja2 import TemplateError

        try:
            return _SYSTEM_MARK not in self._templated(
                (Message("system", _SYSTEM_MARK), Message("user", "Hello"))
            )
        except TemplateError:
            return True
