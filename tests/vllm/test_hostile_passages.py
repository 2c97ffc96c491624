"""Hostile passages against a real vLLM: its tokenizer sees no special token in them, and other verdicts stay."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from support.hostile_passages import HOSTILE

from ragguard import DistractorGuard, Passage
from ragguard.engines.connect import connect
from ragguard.engines.nano.nano_engine import load_tokenizer
from ragguard.engines.prompts import load_prompts

pytestmark = pytest.mark.vllm

QUERY = "By whom was Hextek Foods founded?"
OTHERS = [
    Passage("Hextek Foods was founded by Birgit Backberg.", id="gold"),
    Passage("It was Esther Hedstrom who founded Tritek Foods.", id="near"),
    Passage("Notably, the main product of Hextek Foods is gloves.", id="same"),
]
BFLOAT16 = 3e-2
"""What a probability may differ by when the same prompt stands in another batch."""
SHORT = [hostile for hostile in HOSTILE if len(hostile.text) < 2_000 and "\ud800" not in hostile.text]


@pytest.mark.parametrize("name", ["default", "nano"])
async def test_no_special_token_comes_out_of_a_passage(vllm_server, name):
    tokenizer, prompts = load_tokenizer(), load_prompts(name)
    special = (tokenizer.begin, tokenizer.end, tokenizer.answer)

    async with httpx.AsyncClient(base_url=vllm_server.url.removesuffix("/v1"), timeout=60) as client:

        async def count(text):
            (*_, message) = prompts.render("relevance", [text], query=QUERY).messages
            body = {"model": vllm_server.model, "messages": [{"role": "user", "content": message.content}]}
            reply = await client.post("/tokenize", json=body)
            assert reply.status_code == 200, reply.text
            ids = reply.json()["tokens"]
            return [ids.count(token) for token in special]

        harmless = await count(OTHERS[0].text)
        assert sum(harmless) > 0
        for hostile in SHORT:
            assert await count(hostile.text) == harmless, hostile


async def test_verdicts_are_probabilities_and_the_others_stay_as_they_are(vllm_server):
    engine = connect(vllm_server.url)
    guard = DistractorGuard(engine, budget_ms=60_000, prompts="nano")
    alone = {one.passage.id: one for one in await guard.judged(QUERY, OTHERS)}
    for at, hostile in enumerate(HOSTILE):
        mixed = [*OTHERS]
        mixed.insert(at % 4, Passage(hostile.text, id="hostile"))
        fresh = DistractorGuard(connect(vllm_server.url), budget_ms=60_000, prompts="nano")
        decided = await fresh.aprune(QUERY, mixed)
        assert decided.status in ("pruned", "kept_all"), (hostile, decided.reason)
        for one in await fresh.judged(QUERY, mixed):
            assert 0.0 <= one.p_abstain <= 1.0, hostile
            assert one.p_relevant is None or 0.0 <= one.p_relevant <= 1.0
            if one.passage.id != "hostile":
                before = alone[one.passage.id]
                assert np.allclose(
                    [one.p_abstain, one.p_relevant], [before.p_abstain, before.p_relevant], atol=BFLOAT16
                ), hostile
        await fresh.aclose()
    await guard.aclose()
