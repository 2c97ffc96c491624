"""What engines send, and under which keys answers are kept, byte for byte as in the files beside this one.

A cache that users have on disk, and a score's identity, rest on these. Where a change is meant, write the files
anew (`make golden`) and say so in the changelog.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import aclosing, closing

import pytest
from support.fake_model import FakeModel
from support.golden import compare
from support.misbehaving_server import MisbehavingServer
from support.scripted_engine import ScriptedEngine

from ragguard.engines.base import Message, Prompt, Span
from ragguard.engines.connect import connect
from ragguard.engines.layers import Cache

LONG = Prompt((Message("system", "Be brief."), Message("user", "Who? Ada Berg.")), (Span(1, 5, 13),))
PROMPTS = ["Who founded it?", LONG, [{"role": "user", "content": "Zoë – “quoted” \ud800"}]]


async def ask_everything(engine):
    """Every verb, in every way that scorers and guards ask."""
    await engine.label_probs(PROMPTS, ("NO-RESPONSE", "A", "B"))
    await engine.label_probs(PROMPTS[:1], ("A", "B"), "first_token", None, 3)
    await engine.label_probs(PROMPTS[:1], ("NO-RESPONSE", "NONE"))
    await engine.sample(PROMPTS[:2], 2, 8, 1.0, 7)
    await engine.sample(PROMPTS[:1], 3, 8, 0.0, 7)


@pytest.mark.parametrize("face", ["vllm", "openai"])
async def test_requests_on_the_wire(face):
    async with (
        MisbehavingServer(FakeModel(face=face).handle) as server,
        aclosing(connect(server.url)) as engine,
    ):
        await ask_everything(engine)
        info = await engine.info()
        sent = [[r.method, r.path, json.loads(r.body) if r.body else None] for r in server.requests]
    fingerprint = (
        info.fingerprint if face == "vllm" else info.fingerprint.rpartition("/")[0]
    )  # an address is in it
    compare(f"wire-{face}", {"fingerprint": fingerprint, "requests": sorted(sent, key=json.dumps)})


async def test_sequence_requests_on_the_wire():
    async with (
        MisbehavingServer(FakeModel(face="vllm").handle) as server,
        aclosing(connect(server.url)) as engine,
    ):
        await engine.info()
        server.requests.clear()
        await engine.label_probs(PROMPTS[:1], ("NO-RESPONSE", "A"), "sequence")
        sent = [[r.method, r.path, json.loads(r.body) if r.body else None] for r in server.requests]
    compare("wire-vllm-sequence", sorted(sent, key=json.dumps))


async def test_keys_of_kept_answers(tmp_path):
    engine = ScriptedEngine()
    async with aclosing(Cache(engine, tmp_path / "answers.db")) as cache:
        await ask_everything(cache)
        await cache.label_probs(PROMPTS[:1], ("NO-RESPONSE", "A"), "sequence")
    with closing(sqlite3.connect(tmp_path / "answers.db")) as db:
        rows = db.execute("SELECT hex(key), CAST(value AS TEXT) FROM answers_1 ORDER BY key").fetchall()
    compare("cache-keys", [list(row) for row in rows])


async def test_fingerprint_of_nano():
    engine = connect("nano")
    compare("nano", {"fingerprint": (await engine.info()).fingerprint})
