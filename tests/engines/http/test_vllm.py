"""VllmEngine against servers of every kind: old, thinking, colliding, with templates of all sorts."""

from __future__ import annotations

import re
from contextlib import aclosing

import numpy as np
import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, engine_on

from ragguard.engines.base import Message, Prompt, Span
from ragguard.engines.connect import open_engine
from ragguard.engines.http.server import VllmEngine
from ragguard.errors import EngineRejected

LABELS = ("NO-RESPONSE", "A", "B")
TALK = [Message("system", "Reply with a letter."), Message("user", "  Who <b>runs</b> it?\n")]


async def asked(model: FakeModel, prompts=("Who?",), labels=LABELS, mode=None):
    """(info, probabilities, requests of the last call) of a server with this model."""
    async with MisbehavingServer(model.handle) as server:
        engine = VllmEngine(server.url)
        await engine.label_probs(prompts, labels, mode)
        server.requests.clear()
        probs = await engine.label_probs(prompts, labels, mode)
        info = await engine.info()
        await engine.aclose()
        return info, probs, server.requests


async def test_all_prompts_go_out_in_one_request():
    info, probs, requests = await asked(FakeModel(), [f"Who is {i}?" for i in range(200)])
    assert [request.path for request in requests] == ["/v1/completions"]
    assert len(requests[0].json["prompt"]) == 200
    assert probs.exact
    assert np.allclose(probs.p, [0.1, 0.6, 0.2])
    assert "exact_labels" in info.capabilities
    assert info.notes == ()


async def test_where_the_abstention_begins_like_a_word_its_whole_sequence_is_asked_for():
    info, probs, _ = await asked(FakeModel(collides=True))
    assert info.mode == "sequence"
    assert any("NO-RESPONSE" in note and "sequence" in note for note in info.notes)
    assert probs.mode == "sequence"
    assert np.allclose(probs.p, [0.1 * 0.9, 0.6, 0.2])
    # Said, it stays possible.
    _, first, _ = await asked(FakeModel(collides=True), mode="first_token")
    assert first.mode == "first_token"
    assert np.allclose(first.p, [0.1, 0.6, 0.2])


@pytest.mark.parametrize(
    ("model", "lacks"),
    [
        (FakeModel(exact=False), "logprob_token_ids.*newer vLLM"),
        (FakeModel(template="changes"), "the chat template of fake changes"),
    ],
)
async def test_vllm_that_cannot_be_asked_exactly_is_refused_and_served_by_its_chat_completions(model, lacks):
    async with MisbehavingServer(model.handle) as server:
        alone = VllmEngine(server.url)
        with pytest.raises(EngineRejected, match=lacks):
            await alone.info()
        await alone.aclose()
        engine = open_engine(server.url)
        info = await engine.info()
        assert info.kind == "openai"
        assert any(re.search(lacks, note) for note in info.notes)
        probs = await engine.label_probs(["Who?"], ("A", "zebra"))
        assert (probs.exact, probs.bound.tolist()) == (False, [[False, True]])
        await engine.aclose()


async def test_priorities_are_dropped_where_the_server_refuses_them():
    async with engine_on(FakeModel(refuses=frozenset({"priority"})).handle, VllmEngine) as (_, engine):
        assert "priority" not in (await engine.info()).capabilities
        assert any("--scheduling-policy priority" in note for note in (await engine.info()).notes)
        assert len(await engine.label_probs(["Who?"], LABELS, priority=5)) == 1


@pytest.mark.parametrize(
    ("model", "prompt", "note"),
    [
        (FakeModel(thinks="switched"), "<silent>", ""),
        (FakeModel(thinks="prefilled"), r"<assistant><think>\n\n</think>\n\n$", "empty thought"),
        (FakeModel(template_opens_thought=True), r"<think>\n\n</think>\n\n$", "opens a thought"),
        (FakeModel(template="no system"), r"<user>Reply with a letter\.\n\n  Who <b>runs</b> it\?", "no system turn"),
        (FakeModel(template="trims"), r"<system>Reply with a letter\.\n<user>Who <b>runs</b> it\?\n<assistant>$", ""),
        (FakeModel(template="none"), r"^Reply with a letter\.\n\n  Who <b>runs</b> it\?\nAnswer:$", "no chat template"),
    ],
)  # fmt: skip
async def test_prompt_goes_out_in_the_template_that_was_learned_and_gets_an_answer_at_once(
    model, prompt, note
):
    info, probs, (request,) = await asked(model, [TALK])
    assert re.search(prompt, request.json["prompt"][0])
    assert info.kind == "vllm"
    assert note in " ".join(info.notes)
    assert request.json["add_special_tokens"] is (info.prompts == "plain") is (model.template == "none")
    assert np.allclose(probs.p, [0.1, 0.6, 0.2]) or info.prompts == "plain"


async def test_a_model_that_cannot_be_silenced_is_sampled_instead():
    async with MisbehavingServer(FakeModel(thinks="always").handle) as server:
        alone = VllmEngine(server.url)
        with pytest.raises(EngineRejected, match="thinks before it answers"):
            await alone.label_probs(["Who?"], LABELS)
        await alone.aclose()
        engine = open_engine(server.url)
        probs = await engine.label_probs(["Who?"], LABELS)
        info = await engine.info()
        assert (info.kind, probs.mode, probs.exact) == ("openai", "sampled", False)
        assert any("cannot be switched off" in note for note in info.notes)
        assert probs.stderr is not None
        assert abs(probs.p[0, 1] - 0.6) < 4 * probs.stderr[0, 1]
        samples = await engine.sample(["Who?"], n=10, max_tokens=4)
        assert all("hmm" not in answer.text and answer.logprobs == () for answer in samples[0])
        await engine.aclose()


async def test_passages_are_cut_where_they_do_not_fit():
    text = "word " * 6000
    long = Prompt((Message("user", f"Read: {text} Who?"),), (Span(0, 6, 6 + len(text)),))
    async with MisbehavingServer(FakeModel().handle) as server, aclosing(VllmEngine(server.url)) as engine:
        probs = await engine.label_probs(["Who?", long], LABELS)
        assert 1800 < probs.truncated[1] < 2100
        samples = await engine.sample([long], n=2, max_tokens=100)
        assert 1900 < samples.truncated[0] < 2200
        sent = server.paths("/completions")[-1].json["prompt"][0]
        assert sent.endswith("Who?\n<assistant>")
        assert sent.startswith("<bos><user>Read: word word")
