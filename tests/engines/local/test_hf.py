"""HfEngine on a tiny checkpoint, beside plain one-prompt passes of transformers itself."""

import json
import math

import numpy as np
import pytest
from support.tiny_checkpoint import TEMPLATE, make_checkpoint

from ragguard.engines.base import Message, Prompt
from ragguard.engines.chat_frames import SWITCH_OFF
from ragguard.engines.local.hf import HfEngine
from ragguard.engines.nano.nano_engine import NanoEngine, write_checkpoint
from ragguard.errors import EngineRejected, InvalidInput

torch = pytest.importorskip("torch", reason="the extra hf is not installed")
transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")

TEXTS = [
    "Who founded the firm in Oslo ?",
    "Ada Berg runs a firm based in Lyon . Ole Dahl sells maps in Paris . Who runs the firm ?",
    "東京 or München ?",
    " ".join(["Ole Dahl sells maps ."] * 30),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def plainly(checkpoint):
    """(text) → the log-probabilities of the next token; (text, words) → of each of these words' tokens."""
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)

    def score(text: str, words: str = "") -> tuple[np.ndarray, list[float]]:
        turns = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **SWITCH_OFF
        )
        before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        after = tokenizer(words, add_special_tokens=False)["input_ids"] if words else []
        with torch.inference_mode():
            logprobs = model(torch.tensor([before + after])).logits[0].double().log_softmax(-1)
        next_ = len(before) - 1
        return logprobs[next_].numpy(), [logprobs[next_ + i, token].item() for i, token in enumerate(after)]

    score.ids = lambda word: tokenizer(word, add_special_tokens=False)["input_ids"]
    return score


@pytest.fixture
async def engine(checkpoint):
    engine = HfEngine(checkpoint, device="cpu")
    yield engine
    await engine.aclose()


async def test_labels_are_the_models_own_probabilities(engine, plainly):
    labels = ["NO-RESPONSE", "A", "B", "Oslo"]
    first = await engine.label_probs(TEXTS, labels)
    whole = await engine.label_probs(TEXTS, labels, mode="sequence")
    for row, text in enumerate(TEXTS):
        next_, _ = plainly(text)
        assert first.p[row] == pytest.approx(
            [math.exp(next_[plainly.ids(label)[0]]) for label in labels], rel=1e-4
        )
        assert whole.p[row] == pytest.approx(
            [math.exp(sum(plainly(text, label)[1])) for label in labels], rel=1e-4
        )
    assert (first.exact, first.mode, whole.mode) == (True, "first_token", "sequence")
    assert len(plainly.ids("NO-RESPONSE")) > 1
    assert (first.usage.requests, first.usage.prompts) == (1, 4)
    assert first.usage.prompt_tokens > 150


async def test_samples_follow_the_models_distribution(engine, plainly):
    next_, _ = plainly(TEXTS[0])
    (answers,) = await engine.sample([TEXTS[0]], n=4000, max_tokens=1, seed=3)
    drawn = np.exp([sample.logprobs[0] for sample in answers])
    expected = float((np.exp(next_) ** 2).sum())
    assert drawn.mean() == pytest.approx(expected, abs=4 * drawn.std() / math.sqrt(4000))
    (cold,) = await engine.sample([TEXTS[0]], n=500, max_tokens=1, temperature=0.2, seed=3)
    assert np.mean([sample.logprobs[0] for sample in cold]) > np.mean(np.log(drawn))


async def test_an_answer_ends_where_the_model_ends_it(engine):
    (answers,) = await engine.sample([TEXTS[0]], n=400, max_tokens=12, seed=1)
    ended = [sample for sample in answers if sample.finished]
    cut = [sample for sample in answers if not sample.finished]
    assert ended
    assert all(len(sample.logprobs) == 12 for sample in cut)
    assert all(1 <= len(sample.logprobs) < 12 for sample in ended)
    assert not any("<eos>" in sample.text for sample in answers)


async def test_small_batches_change_nothing(checkpoint, engine):
    small = HfEngine(checkpoint, device="cpu", max_batch_tokens=64)
    texts = [f"{text} {i}" for i in range(5) for text in TEXTS]
    labels, answers = [], []
    for each in (engine, small):
        labels.append((await each.label_probs(texts, ["A", "NO-RESPONSE"], mode="sequence")).p)
        answers.append([[s.text for s in a] for a in await each.sample(texts, 2, 5, seed=2)])
    np.testing.assert_allclose(labels[0], labels[1], rtol=1e-4)
    assert answers[0] == answers[1]
    await small.aclose()


async def test_other_weights_are_another_model(tmp_path, engine):
    where = make_checkpoint(tmp_path / "tiny")
    same = HfEngine(where, device="cpu")
    unchanged = (await same.info()).fingerprint.rpartition("/")[2]
    model = transformers.AutoModelForCausalLM.from_pretrained(where)
    with torch.no_grad():
        model.lm_head.weight[5] += 0.1
    model.save_pretrained(where)
    other = HfEngine(where, device="cpu")
    mark = (await engine.info()).fingerprint.rpartition("/")[2]
    assert (await other.info()).fingerprint.rpartition("/")[2] != mark
    assert unchanged == mark
    await same.aclose()
    await other.aclose()


async def test_a_template_without_system_turns(tmp_path):
    refuses = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
    )
    engine = HfEngine(make_checkpoint(tmp_path, template=refuses), device="cpu")
    turns = (Message("system", "Reply with A"), Message("user", "Who ?"))
    folded = await engine.label_probs([Prompt(turns)], ["A"])
    assert folded.p == pytest.approx((await engine.label_probs(["Reply with A\n\nWho ?"], ["A"])).p)
    assert any("system" in note for note in (await engine.info()).notes)
    await engine.aclose()


async def test_a_model_without_a_template(tmp_path):
    where = make_checkpoint(tmp_path)
    (where / "chat_template.jinja").unlink()
    settings = json.loads((where / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (where / "tokenizer_config.json").write_text(json.dumps(settings))
    engine = HfEngine(where, device="cpu")
    info = await engine.info()
    assert any("no chat template" in note for note in info.notes)
    assert info.prompts == "plain"
    assert (await engine.label_probs(["who ?"], ["A"])).p.shape == (1, 1)
    with pytest.raises(InvalidInput, match="prompt 1"):
        await engine.label_probs(["who ?", ""], ["A"])
    await engine.aclose()


async def test_folder_or_dtype_that_cannot_be_loaded_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match=r"config\.json"):
        HfEngine(tmp_path)
    with pytest.raises(InvalidInput, match="dtype"):
        HfEngine("some/model", dtype="int3")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    engine = HfEngine(tmp_path)
    with pytest.raises(EngineRejected, match="could not load"):
        await engine.info()
    await engine.aclose()


async def test_exported_nano_is_recognised_by_its_vocabulary(tmp_path):
    write_checkpoint(tmp_path)
    engines = HfEngine(tmp_path, device="cpu"), NanoEngine()
    exported, nano = [await engine.info() for engine in engines]
    assert (exported.prompts, exported.mode, exported.context) == ("nano", nano.mode, nano.context)
    assert not any("A/B question" in note for note in exported.notes), "it answers its own letters"
    for engine in engines:
        await engine.aclose()
