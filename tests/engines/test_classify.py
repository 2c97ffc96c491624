"""The client of vLLM's `/classify`: what it learns of a server, and everything a server can do wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from support.misbehaving_server import MisbehavingServer, Reply, Request

from ragguard.engines.entailer import Entailer
from ragguard.engines.entailment import Pair
from ragguard.engines.nli_models import ClassifyEntailer
from ragguard.errors import (
    EngineProtocolError,
    EngineRejected,
    InvalidInput,
    PromptTooLong,
)

QUESTION = "Who?"
PAIR = Pair(QUESTION, "Ada", "Ole")


@dataclass
class FakeClassifier:
    """A server whose verdicts hang on words: more alike is entailment, `not` and other names contradict."""

    labels: tuple[str, ...] = ("contradiction", "entailment", "neutral")
    frame: tuple[str, str] = ("<s>", "</s>")
    separator: str = "</s></s>"
    context: int = 512
    shows: str = "all"
    inputs: list[str] = field(default_factory=list)

    def handle(self, request: Request) -> Reply:
        """The answer to a request."""
        if request.path == "/v1/models":
            return Reply({"data": [{"id": "nli", "owned_by": "vllm", "max_model_len": self.context}]})
        if request.path == "/tokenize":
            text = request.json["prompt"]
            tokens = [self.frame[0], *text.split(), self.frame[1]]
            return Reply({"count": len(tokens), "tokens": list(range(len(tokens))), "token_strs": tokens})
        if request.path == "/classify":
            return self._classify(request.json["input"])
        return Reply({"detail": "Not Found"}, 404)

    def _classify(self, texts: list[str]) -> Reply:
        self.inputs += texts
        longest = max(len(text.split()) for text in texts)
        if longest > self.context:
            said = f"This model's maximum context length is {self.context} tokens. You requested {longest} tokens."
            return Reply({"error": {"message": said, "code": 400}}, 400)
        rows = [self._row(index, text) for index, text in enumerate(texts)]
        return Reply({"data": rows, "usage": {"prompt_tokens": 9 * len(texts)}})

    def _row(self, index: int, text: str) -> dict[str, object]:
        one, _, other = text.partition(self.separator)
        verdict = self.verdict(one, other)
        probs = [0.7 if label == verdict else 0.3 / (len(self.labels) - 1) for label in self.labels]
        best = self.labels.index(verdict)
        return {"index": index, "label": self.labels[best], "probs": probs, "num_classes": len(probs)}

    def verdict(self, one: str, other: str) -> str:
        """What it thinks."""
        first, second = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
        if self.shows == "one":
            return self.labels[0]
        if second <= first or "france" in second or "not" in second:
            thought = "entailment"
        elif first & second and len(second) > len(first) and self.shows == "all":
            thought = "neutral"
        else:
            thought = "contradiction"
        return thought if thought in self.labels else self.labels[0]


@pytest.fixture
async def served():
    classifier = FakeClassifier()
    async with MisbehavingServer(classifier.handle) as server:
        yield classifier, server


def classifier_at(server: MisbehavingServer, **settings: object) -> ClassifyEntailer:
    return ClassifyEntailer(server.url, **settings)


async def test_columns_are_learned_from_what_the_server_calls_its_classes(served):
    classifier, server = served
    entailer = classifier_at(server)
    assert isinstance(entailer, Entailer)
    answer = await entailer.entail([PAIR, Pair(QUESTION, "Ada Berg", "Ada"), Pair(QUESTION, "x", "x!")])
    assert answer.p[0] == pytest.approx([0.15, 0.15, 0.7])
    assert answer.p[1] == pytest.approx([0.7, 0.15, 0.15])
    assert answer.p[2].tolist() == [1, 0, 0]
    assert classifier.inputs[-2:] == ["Who? Ada</s></s>Who? Ole", "Who? Ada Berg</s></s>Who? Ada"]
    assert (answer.usage.requests, answer.usage.prompts, answer.usage.prompt_tokens) == (1, 2, 18)
    info = await entailer.info()
    assert (info.kind, info.model, info.context) == ("vllm-classify", "nli", 512)
    await entailer.aclose()


async def test_server_that_shows_some_of_its_classes_wants_labels():
    async with MisbehavingServer(FakeClassifier(shows="one").handle) as server:
        for labels, known in (
            (None, "0 = contradiction"),
            (("entailment", "not_entailment"), "0 = entailment, 1 = not_entailment"),
        ):
            entailer = classifier_at(server, labels=labels)
            with pytest.raises(EngineRejected, match=rf"has 3 classes.*{known}\..*labels="):
                await entailer.entail([PAIR])
            await entailer.aclose()
        told = classifier_at(server, labels=("contradiction", "entailment", "neutral"))
        assert (await told.entail([PAIR])).p[0] == pytest.approx([0.15, 0.15, 0.7])
        await told.aclose()


@pytest.mark.parametrize(
    ("frame", "separator"), [(("<s>", "</s>"), "</s></s>"), (("[CLS]", "[SEP]"), "[SEP]")]
)
async def test_both_texts_are_put_together_as_the_tokenizer_does(frame, separator):
    classifier = FakeClassifier(frame=frame, separator=separator)
    async with MisbehavingServer(classifier.handle) as server:
        entailer = classifier_at(server)
        await entailer.entail([Pair(QUESTION, f"Ada{frame[1]}Ole", "[SEP]</s>")])
        assert classifier.inputs[-1].count(separator) == 1
        assert frame[1] not in classifier.inputs[-1].replace(separator, "")
        await entailer.aclose()


async def test_tokenizer_of_an_unknown_family_is_refused_with_the_way_out():
    async with MisbehavingServer(FakeClassifier(frame=("Hi", "there")).handle) as server:
        entailer = classifier_at(server)
        with pytest.raises(EngineRejected, match="hf:MODEL"):
            await entailer.entail([PAIR])
        await entailer.aclose()


async def test_pair_that_is_too_long_is_refused_and_nothing_is_cut():
    async with MisbehavingServer(FakeClassifier(context=60).handle) as server:
        entailer = classifier_at(server)
        with pytest.raises(PromptTooLong, match="maximum context length is 60"):
            await entailer.entail([PAIR, Pair(QUESTION, "Ada " * 100, "Ole")])
        await entailer.aclose()


async def test_a_server_that_came_back_with_another_model_is_looked_at_anew(served):
    _, server = served
    entailer = classifier_at(server)
    await entailer.info()
    gone = {"error": {"message": "The model `nli` does not exist.", "code": 404}}
    server.script([Reply(gone, 404)], "/classify")
    with pytest.raises(EngineRejected, match="does not exist"):
        await entailer.entail([PAIR])
    looked = len(server.paths("/models"))
    assert len((await entailer.entail([PAIR])).p) == 1
    assert len(server.paths("/models")) == looked + 1
    await entailer.aclose()


def rows(*probs: list[float]) -> dict[str, object]:
    return {"data": [{"index": i, "label": "entailment", "probs": p} for i, p in enumerate(probs)]}


@pytest.mark.parametrize(
    "body",
    [
        [1, 2],
        {"data": None},
        {"data": []},
        rows([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]),
        {"data": [{"index": 7, "label": "entailment", "probs": [0.2, 0.5, 0.3]}]},
        {"data": [{"index": 0, "label": "entailment"}]},
        {"data": [None]},
        rows([0.2, 0.9, 0.3]),
        rows([0.2, float("nan"), 0.3]),
        rows([-0.2, 0.9, 0.3]),
        rows([0.2, "x", 0.3]),
    ],
)
async def test_answers_that_cannot_be_right_are_errors_and_never_numbers(served, body):
    _, server = served
    entailer = classifier_at(server)
    await entailer.info()
    server.script([Reply(body)], "/classify")
    with pytest.raises(EngineProtocolError):
        await entailer.entail([PAIR])
    assert (await entailer.entail([PAIR])).p.shape == (1, 3), "it was the answer, not the client"
    await entailer.aclose()


async def test_another_number_of_classes_is_another_model(served):
    _, server = served
    entailer = classifier_at(server)
    await entailer.info()
    looked = len(server.paths("/models"))
    server.script([Reply(rows([0.2, 0.8]))], "/classify")
    with pytest.raises(EngineRejected, match="another model is served there"):
        await entailer.entail([PAIR])
    assert (await entailer.entail([PAIR])).p.shape == (1, 3)
    assert len(server.paths("/models")) == looked + 1
    await entailer.aclose()


def test_wrong_labels_are_refused_where_they_are_given():
    with pytest.raises(InvalidInput, match="labels"):
        ClassifyEntailer("http://127.0.0.1:1/v1", labels=("yes", "no"))
