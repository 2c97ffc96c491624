"""OpenAIEngine against servers of every make: what they show, refuse, ignore and think."""

from __future__ import annotations

from contextlib import aclosing

import numpy as np
import pytest
from support.commands import ragguard
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, engine_on, serving
from support.providers import KEY, PROVIDERS

from ragguard import RagGuard
from ragguard.engines.base import Message, Prompt, Span
from ragguard.engines.http.chat import named
from ragguard.engines.http.server import OpenAIEngine
from ragguard.errors import EngineProtocolError, EngineRejected

LABELS = ("NO-RESPONSE", "A", "B")


async def asked(model: FakeModel, labels=LABELS):
    """(info, probabilities, requests of that call)."""
    async with MisbehavingServer(model.handle) as server:
        engine = OpenAIEngine(server.url)
        info = await engine.info()
        server.requests.clear()
        probs = await engine.label_probs(["Who?"], labels)
        await engine.aclose()
        return info, probs, server.requests


async def test_labels_among_the_most_probable_are_exact():
    info, probs, (request,) = await asked(FakeModel(face="openai"))
    assert probs.exact
    assert probs.mode == "first_token"
    assert np.allclose(probs.p, [[0.1, 0.6, 0.2]])
    assert (request.json["top_logprobs"], request.json["max_tokens"]) == (20, 1)
    assert {"top_logprobs", "sample_logprobs", "n_samples", "seed"} == info.capabilities


async def test_a_label_outside_them_has_an_upper_bound():
    info, probs, (request,) = await asked(FakeModel(face="openai", top=5), ("A", "2", "zebra"))
    assert request.json["top_logprobs"] == 5
    assert not probs.exact
    assert probs.bound.tolist() == [[False, True, True]]
    # What the five leave over, which is less than the least of them.
    assert np.allclose(probs.p, [[0.6, 0.02, 0.02]])
    assert any("upper bound" in note for note in info.notes)


@pytest.mark.parametrize("content", [[], None])
async def test_empty_reply_gives_the_labels_no_mass_and_a_reply_without_tokens_is_an_error(content):
    reply = Reply(
        {"choices": [{"message": {"content": ""}, "finish_reason": "stop", "logprobs": {"content": content}}]}
    )
    async with engine_on(FakeModel(face="openai").handle, OpenAIEngine) as (server, engine):
        await engine.info()
        server.script([reply])
        if content is None:
            with pytest.raises(EngineProtocolError, match="still the same server"):
                await engine.label_probs(["Who?"], LABELS)
        else:
            probs = await engine.label_probs(["Who?"], LABELS)
            assert (float(probs.mass[0]), probs.exact) == (0.0, False)


@pytest.mark.parametrize("model", [FakeModel(face="openai", top=0), FakeModel(face="openai", shown=0)])
async def test_without_log_probabilities_answers_are_sampled(model):
    info, probs, requests = await asked(model)
    assert (probs.mode, probs.exact) == ("sampled", False)
    assert np.allclose(probs.p, [[0.09, 0.6, 0.2]], atol=0.3)
    assert (probs.stderr > 0).all()
    assert (probs.stderr < 0.12).all()
    assert any("20 sampled answers" in note for note in info.notes)
    assert requests[0].json["n"] == 20
    again = await asked(model)
    assert np.array_equal(again[1].p, probs.p)


@pytest.mark.parametrize("many", ["ignored", "refused"])
async def test_server_of_one_answer_a_request_gets_one_request_a_sample(many):
    async with engine_on(FakeModel(face="openai", many=many).handle, OpenAIEngine) as (server, engine):
        info = await engine.info()
        assert "n_samples" not in info.capabilities
        assert any("one answer a request" in note for note in info.notes)
        server.requests.clear()
        samples = await engine.sample(["Who?"], n=5, max_tokens=6, seed=3)
        assert len(samples[0]) == 5
        assert sorted(request.json["seed"] for request in server.requests) == [3, 4, 5, 6, 7]
        assert samples.usage.requests == 5


@pytest.mark.parametrize(
    "refusal",
    [
        {"error": {"message": "n_cmpl cannot be greater than the number of slots, please increase -np"}},
        {"error": {"message": "Invalid 'n': integer above maximum value. Expected a value <= 2."}},
        {"detail": [{"loc": ["body", "n"], "msg": "Input should be less than or equal to 2"}]},
    ],
)
async def test_server_that_refuses_many_choices_is_asked_for_as_many_as_it_gives(refusal):
    model = FakeModel(face="openai")

    def handle(request):
        many = request.path.endswith("completions") and request.json.get("n", 1) > 2
        return Reply(refusal, 400) if many else model.handle(request)

    async with engine_on(handle, OpenAIEngine) as (server, engine):
        await engine.info()
        for question, sizes in (("Who?", [10, 5, 2, 2, 2, 2, 2]), ("And who?", [2, 2, 2, 2, 2])):
            server.requests.clear()
            samples = await engine.sample([question], n=10, max_tokens=6, seed=3)
            assert len(samples[0]) == 10
            assert [request.json.get("n", 1) for request in server.requests] == sizes
            assert samples.usage.requests == 5


@pytest.mark.parametrize(
    "names", [{"max_tokens"}, {"temperature"}, {"seed"}, {"max_tokens", "temperature", "seed"}]
)
async def test_refused_parameters_are_left_out(names):
    info, probs, (request,) = await asked(FakeModel(face="openai", refuses=frozenset(names)))
    assert np.allclose(probs.p, [[0.1, 0.6, 0.2]])
    assert not names & request.json.keys()
    assert "max_tokens" not in names or request.json["max_completion_tokens"] == 1
    assert ("seed" in info.capabilities) == ("seed" not in names)


async def test_thinking_is_switched_off_where_that_works():
    info, probs, (request,) = await asked(FakeModel(face="openai", thinks="switched"))
    assert np.allclose(probs.p, [[0.1, 0.6, 0.2]])
    assert request.json["chat_template_kwargs"]["enable_thinking"] is False
    assert any("switched off" in note for note in info.notes)


@pytest.mark.parametrize("in_field", [True, False])
async def test_a_thought_that_cannot_be_switched_off_is_cut_off(in_field):
    model = FakeModel(face="openai", thinks="always", reasoning_field=in_field)
    info, probs, requests = await asked(model)
    assert probs.mode == "sampled"
    assert np.allclose(probs.p, [[0.09, 0.6, 0.2]], atol=0.25)
    assert requests[0].json["max_tokens"] > 1000
    assert any("cannot be switched off" in note for note in info.notes)
    async with MisbehavingServer(model.handle) as server, aclosing(OpenAIEngine(server.url)) as engine:
        samples = await engine.sample(["Who?"], n=10, max_tokens=6)
        assert all(answer.text and "hmm" not in answer.text and not answer.logprobs for answer in samples[0])


async def test_a_thought_without_end_is_no_answer(monkeypatch):
    monkeypatch.setattr("ragguard.engines.http.openai.THINKING_TOKENS", 1)
    monkeypatch.setattr(FakeModel, "next", lambda self, prompt, said: {" hmm" if said else "<think>": 1.0})
    async with engine_on(FakeModel(face="openai", thinks="always").handle, OpenAIEngine) as (_, engine):
        with pytest.raises(EngineProtocolError, match="after 1 tokens of thought"):
            await engine.label_probs(["Who?"], LABELS)
        samples = await engine.sample(["Who?"], n=2, max_tokens=3)
        assert [(answer.text, answer.finished) for answer in samples[0]] == [("", False)] * 2


async def test_an_abstention_that_begins_like_a_word_is_sampled_and_the_rest_is_not():
    model = FakeModel(face="openai", collides=True)
    info, probs, _ = await asked(model)
    assert any("NO-RESPONSE" in note for note in info.notes)
    assert probs.mode == "sampled"
    assert abs(probs.p[0, 0] - 0.09) < 4 * probs.stderr[0, 0]
    _, judged, _ = await asked(model, ("A", "B"))
    assert judged.mode == "first_token"
    assert np.allclose(judged.p, [[0.6, 0.2]])


async def test_sequence_mode_without_whole_label_probabilities_is_refused():
    async with engine_on(FakeModel(face="openai").handle, OpenAIEngine) as (_, engine):
        with pytest.raises(EngineRejected, match="vLLM"):
            await engine.label_probs(["Who?"], LABELS, mode="sequence")


@pytest.mark.parametrize("context", [4096, 700])
async def test_passages_are_cut_by_what_the_server_says_of_them(context):
    text = "word " * 6000
    long = Prompt((Message("user", f"Read: {text} Who?"),), (Span(0, 6, 6 + len(text)),))
    async with engine_on(FakeModel(face="openai", context=context).handle, OpenAIEngine) as (server, engine):
        probs = await engine.label_probs(["Who?", long], LABELS)
        assert list(probs.truncated) == [1]
        assert probs.truncated[1] > 6000 - context
        sent = server.requests[-1].json["messages"][0]["content"]
        assert sent.startswith("Read: word word")
        assert sent.endswith("Who?")


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("A", "A"), (" A. ", "A"), ("**B**", "B"), ('"A"', "A"), ("A: yes, it does", "A"), ("B - no", "B"),
        ("A firm in Oslo", None), ("Ada", None), ("a", None), ("", None),
        ("NO-RESPONSE", "NO-RESPONSE"), ("no-response.", "NO-RESPONSE"), ("NO-RESPONSE, it is silent", "NO-RESPONSE"),
        ("No", None), ("NO-RESPONSES", None),
    ],
)  # fmt: skip
def test_label_is_read_from_an_answer_only_where_it_stands_alone(answer, label):
    assert named(answer, LABELS) == label


@pytest.fixture(params=PROVIDERS)
def provider(request, monkeypatch):
    """Yields a provider, its address here, and the requests that it gets; its key stands in the environment."""
    found, asked = PROVIDERS[request.param], []
    for name in ("RAGGUARD_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    if found.key_name:
        monkeypatch.setenv(found.key_name, KEY)

    def handle(sent):
        asked.append(sent)
        return found.handle(sent)

    with serving(handle) as url:
        yield found, url.removesuffix("/v1") + found.path, asked


def test_doctor_says_how_exact_the_server_is(provider):
    found, address, asked = provider
    result = ragguard("doctor", address, code=0)
    last = result.stdout.splitlines()[-1]
    assert last.startswith("ready: exact" if found.exact else "ready: estimated"), result.output
    assert len(asked) < 400  # 961 and more where each label costs a request a sample
    assert KEY not in result.output


def test_hop_gets_utility_and_belief(provider):
    found, address, asked = provider
    with RagGuard(engine=address, scorers=["utility", "belief"], store=None) as rg:
        with rg.run("Who wrote it?", references=["Ada Berg"]) as run:
            run.retrieved("author", ["Ada Berg wrote it.", "It is long."])
        assert rg.flush(timeout=60), rg.flush()
        names = {score.name for score in rg.scores(run.id)}
    assert {"utility", "p_abstain", "p_relevant", "delta_seper"} <= names
    wanted = [sent.json.get("n", 1) for sent in asked if sent.path.endswith("/chat/completions")]
    # A limit is learnt from the first refusal: only what is in flight at that moment is refused as well.
    assert sum(n > found.most_choices for n in wanted) <= 16
