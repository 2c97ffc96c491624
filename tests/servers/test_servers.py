"""Real servers: llama.cpp, LiteLLM's proxy before it, and `transformers serve`, each against the same weights in this
process. llama.cpp serves smol, since nano's tokens, a word each, are no tokens of its."""

from __future__ import annotations

from contextlib import aclosing

import numpy as np
import pytest
from support.commands import ragguard

from ragguard import RagGuard, world
from ragguard.engines.connect import open_engine
from ragguard.engines.prompts import load_prompts
from ragguard.metrics import correlate

pytestmark = pytest.mark.servers
FACTS = {
    "Where was Ada Berg born?": "Ada Berg was born in Turin in 1901.",
    "Who has written the letter?": "The letter was written by a judge.",
    "What colour is the sky?": "Grass is green.",
    "When did the war end?": "The war ended in 1945.",
}


# httpx leaves the socket of a request that is cancelled while it connects to the garbage collector.
@pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <(socket|function _SelectorTransport):pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("llama_cpp", ["continuations, n_samples, sample_logprobs, seed", "20 likeliest tokens", "labels      exact"]),
        ("litellm", ["n_samples, sample_logprobs, seed, top_logprobs", "20 likeliest tokens", "labels      exact"]),
        ("labels:transformers_serve", ["no log-probabilities", "one answer a request", "labels      estimated"]),
    ],
)  # fmt: skip
def test_doctor_says_what_the_server_shows(request, server, shown):
    scheme, _, fixture = server.rpartition(":")
    address = request.getfixturevalue(fixture)
    result = ragguard("doctor", f"{scheme}:{address}" if scheme else address)
    for words in shown:
        assert words in result.stdout
    # Neither model follows the prompts for models of ordinary size.
    assert result.stdout.splitlines()[-1].startswith(
        "not ready: the model puts too little probability on the labels"
    )
    assert result.exit_code == 1


TEXTS = ("Ada Berg was born in Turin.", "Turin", "a judge", "Zangard", "1945")


@pytest.mark.parametrize("path", ["chat", "completion"])
async def test_llama_cpp_gives_the_likelihoods_of_the_same_file_here(llama_cpp, path):
    """`smol` computes the file's own numbers, llama.cpp rounds its activations to eight bits."""
    prompts = load_prompts("default")
    asked = [prompts.render("answer", [text], question=query) for query, text in FACTS.items()]
    async with (
        aclosing(open_engine("smol")) as here,
        aclosing(open_engine(llama_cpp, timeout_s=600)) as there,
    ):
        (await there.model()).forced.path = path
        texts = [list(TEXTS)] * len(asked)
        ours, theirs = [await engine.continuations(asked, texts) for engine in (here, there)]
        pairs = [
            (a, b) for mine, its in zip(ours, theirs, strict=True) for a, b in zip(mine, its, strict=True)
        ]
        assert [len(a.logprobs) for a, _ in pairs] == [len(b.logprobs) for _, b in pairs]
        assert np.mean([abs(a.mean - b.mean) for a, b in pairs]) < 0.15
        # An end that is all but impossible differs by more, and decides nothing.
        assert np.median([abs(a.end - b.end) for a, b in pairs]) < 0.5
        one, other = np.array([(a.mean, b.mean) for a, b in pairs]).T
        assert correlate(one, other, "kendall_b", draws=2).value >= 0.95


def test_likelihood_of_llama_cpp_credits_the_hop_that_answers(llama_cpp):
    with RagGuard(engine=llama_cpp, scorers=["likelihood"], store=None) as rg:
        with rg.run("Where was Ada Berg born?", references=["Turin"]) as run:
            run.retrieved("sky", ["Grass is green."])
            run.retrieved("birthplace", ["Ada Berg was born in Turin in 1901."])
        assert rg.flush(timeout=500), rg.flush()
        said = [score for score in rg.scores(run.id) if score.name == "log_gain"]
        gained = [score.value for score in said if score.level == "step"]
    assert gained[1] > 1 > gained[0]  # smol on the same file: 3.30 and -0.07


@pytest.mark.parametrize("server", ["llama_cpp", "litellm"])
async def test_llama_cpp_gives_the_probabilities_and_answers_of_the_same_weights_here(request, server):
    prompts = load_prompts("default")
    judged = [prompts.render("relevance", [text], query=query) for query, text in FACTS.items()]
    asked = [prompts.render("answer", [text], question=query) for query, text in FACTS.items()]
    async with (
        aclosing(open_engine("smol")) as here,
        aclosing(open_engine(request.getfixturevalue(server))) as there,
    ):
        ours, theirs = [np.asarray(await engine.label_probs(judged, ["A", "B"])) for engine in (here, there)]
        # llama.cpp rounds its activations to eight bits, and with what stands beside them: 0.04 was seen.
        assert np.abs(ours - theirs).max() < 0.08
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.98
        mine, its = [
            await engine.sample(asked, n=1, max_tokens=8, temperature=0.0) for engine in (here, there)
        ]
        assert sum(a[0].text.strip() == b[0].text.strip() for a, b in zip(mine, its, strict=True)) >= 3


def test_transformers_serve_shows_no_probabilities_and_judges_by_typed_questions(transformers_serve):
    result = ragguard("doctor", transformers_serve)
    for words in (
        "no log-probabilities",
        "answers typed questions, too",
        "labels      exact",
        "label mass  the server does not give it",
    ):
        assert words in result.stdout
    assert result.exit_code == 0


async def test_transformers_serve_gives_shares_around_the_probabilities_of_the_same_weights_here(
    transformers_serve,
):
    prompts, cases = load_prompts("nano"), world.cases(20, seed=60)
    judged = [
        prompts.render("abstention", [c.pool()[i % 6].text], query=c.question) for i, c in enumerate(cases)
    ]
    asked = [
        prompts.render("answer", [p.text for p in c.pool()[: 2 + i % 5]], question=c.question)
        for i, c in enumerate(cases)
    ]
    async with (
        aclosing(open_engine("nano")) as here,
        aclosing(open_engine(transformers_serve)) as there,
    ):
        ours = np.asarray(await here.label_probs(judged, ["NO-RESPONSE"]))
        theirs = await there.label_probs(judged, ["NO-RESPONSE"])
        assert not theirs.exact
        # Shares of 20 samples each: the mean of 20 of them has an error of at most 0.025.
        assert abs(np.mean(ours - np.asarray(theirs))) < 0.1
        assert np.corrcoef(ours.ravel(), np.asarray(theirs).ravel())[0, 1] > 0.95
        mine, its = [
            await engine.sample(asked, n=1, max_tokens=6, temperature=0.0) for engine in (here, there)
        ]
        assert sum(a[0].text.strip() == b[0].text.strip() for a, b in zip(mine, its, strict=True)) >= 19


def test_hop_gets_utility_and_belief_of_transformers_serve(transformers_serve):
    case = world.cases(1, seed=61)[0]
    passages = [passage.text for passage in case.pool()[:3]]
    with RagGuard(engine=transformers_serve, prompts="nano", scorers=["utility", "belief"], store=None) as rg:
        with rg.run(case.question, references=[case.answer]) as run:
            run.retrieved(case.question, passages)
        assert rg.flush(timeout=200), rg.flush()
        scores = rg.scores(run.id)
    assert {"utility", "p_relevant", "delta_seper"} <= {score.name for score in scores}
    assert all(score.stderr for score in scores if score.name == "p_abstain")


def test_litellm_without_its_key_is_not_ready(litellm, monkeypatch):
    monkeypatch.delenv("RAGGUARD_API_KEY")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = ragguard("doctor", litellm, code=1)
    assert "not ready" in result.output
    assert "500" in result.output
