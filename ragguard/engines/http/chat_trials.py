"""Finds out by trial which parameters a server's chat completions take, and what its model's answers show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ragguard.engines.base import Message, Prompt
from ragguard.engines.http.chat import Choice, Dialect, ask, spelled
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.label_tokens import ABSTENTION, CONTRASTS
from ragguard.engines.requests.draws import DrawRequest
from ragguard.engines.thinking import QUESTION
from ragguard.errors import EngineRejected

LABEL_TOKENS = 8
"""The most tokens of an answer that is to be a label."""
_LOOK_TOKENS = 16


async def accepted(client: HttpClient, model: str, dialect: Dialect) -> tuple[Dialect, list[Choice]]:
    """Asks the plain question without each parameter that the server refuses, until it answers."""
    while True:
        n = 2 if dialect.many else 1
        try:
            question = DrawRequest((QUESTION,), n, _LOOK_TOKENS, 1.0, seed=1)
            choices, _ = await ask(client, model, dialect, question, top=True)
        except EngineRejected as error:
            less = dialect.without(str(error))
            if less is None:
                return await _smallest_accepted(client, model, error)
            dialect = less
            continue
        if len(choices) < n:
            dialect = replace(dialect, many=False)
        if not choices[0].first and dialect.top:
            dialect = replace(dialect, top=0)
        return dialect, choices


async def _smallest_accepted(
    client: HttpClient, model: str, refusal: EngineRejected
) -> tuple[Dialect, list[Choice]]:
    """Asks the plain question with the smallest body, after a refusal that names no parameter; raises that refusal
    where the server refuses this, too."""
    if refusal.status not in (400, 422):
        raise refusal
    for limit_name in ("max_tokens", "max_completion_tokens"):
        dialect = Dialect.smallest(limit_name, str(refusal))
        question = DrawRequest((QUESTION,), 1, _LOOK_TOKENS, 1.0)
        with suppress(EngineRejected):
            return dialect, (await ask(client, model, dialect, question))[0]
    raise refusal


async def collides(client: HttpClient, model: str, dialect: Dialect) -> bool:
    """True where the abstention begins with the same token as a common word."""
    prompt = Prompt((Message("user", f"Repeat this and write nothing else: {ABSTENTION}"),))
    repeated = DrawRequest((prompt,), 1, LABEL_TOKENS, 0.0)
    (choice, *_), _ = await ask(client, model, dialect, repeated, top=True)
    token = spelled(ABSTENTION, choice.first)
    start = token.text.strip(" ▁\n") if token else ""
    return bool(start) and any(word.startswith(start) for word in CONTRASTS)


def thought(choices: Sequence[Choice]) -> bool:
    return any(choice.thought for choice in choices)
