"""The digest of a prompt and of what is asked about it: the stem of the keys under which answers are kept."""

from __future__ import annotations

import hashlib

from ragguard.engines.base import Prompt


def prompt_digest(stem: str, prompt: Prompt) -> hashlib._Hash:
    """The digest of everything that a prompt's answer depends on, what may be cut from it included."""
    digest = hashlib.sha256(stem.encode())
    for message in prompt.messages:
        content = message.content.encode("utf-8", "surrogatepass")
        digest.update(f"\0{message.role} {len(content)} ".encode())
        digest.update(content)
    digest.update(repr([tuple(span) for span in prompt.cuttable]).encode())
    return digest
