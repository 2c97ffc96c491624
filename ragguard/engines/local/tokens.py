"""A model's tokenizer in this process: prompts become the ids that the model reads, labels those it would say.

Serves transformers and in-process vLLM alike, which both hold a Hugging Face tokenizer. Follows the
same rules as `templates`, which learns them from a server.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ragguard.engines.base import Message, Prompt, folded
from ragguard.engines.labels import ABSTENTION, CONTRASTS, colliding
from ragguard.engines.nano.tokenizer import MARKER
from ragguard.engines.thinking import QUESTION, SWITCH_OFF, Thought, open_thought
from ragguard.errors import InvalidInput

_SYSTEM_MARK = "Q 7 Z 4 X"


class LocalTokens:
    """What is known of one tokenizer and its chat template. `ending` is put where the answer begins."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Rust tokenizers refuse to be used while another thread sets their options.
        self._lock = threading.Lock()
        self.plain = not getattr(tokenizer, "chat_template", None)
        """There is no template: the messages themselves are the prompt."""
        self.folds = not self.plain and self._loses_system()
        """The template knows no system turn: what it says is put before the first user turn."""
        self.ending = ""
        self.opened: Thought | None = None
        """The thought that the template itself opens; `ending` closes it at once."""
        if not self.plain:
            self.opened = open_thought(self.text(QUESTION))
            self.ending = f"\n{self.opened.closes}\n\n" if self.opened else ""

    def text(self, prompt: Prompt) -> str:
        """The prompt as the model gets it."""
        if self.plain:
            return "\n\n".join(message.content for message in prompt.messages) + "\n" + self.ending
        messages = folded(prompt.messages) if self.folds else prompt.messages
        return self._templated(messages) + self.ending

    def ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """The token ids of each prompt."""
        return self._encode([self.text(prompt) for prompt in prompts])

    def following(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The ids of texts as they follow a prompt: a word's tokens depend on what stands before it."""
        start = self.text(QUESTION)
        before, *after = self._encode([start, *(start + text for text in texts)])
        found = []
        for text, ids in zip(texts, after, strict=True):
            rest = ids[len(before) :] if ids[: len(before)] == before else self._alone(text)
            if not rest:
                raise InvalidInput("labels", text, "texts of which the model's tokenizer makes tokens")
            found.append(tuple(rest))
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)).strip()

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text with special tokens shown."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def collide(self, lead: str) -> bool:
        """Whether the abstention begins like a common word, so that its first token does not tell it."""
        abstention, *others = self.following([lead + word for word in (ABSTENTION, *CONTRASTS)])
        return any(colliding([abstention, other]) for other in others)

    def is_nano(self) -> bool:
        """Whether this is an exported nano: its vocabulary has a word that no other has."""
        ids = self._alone(MARKER)
        return len(ids) == 1 and self.decode_all(ids).strip() == MARKER

    def _alone(self, text: str) -> list[int]:
        with self._lock:
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # A lone surrogate is no text that a tokenizer takes; it becomes a question mark.
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
