"""The exported checkpoint: transformers computes the same numbers and the same answers from it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ragguard import world
from ragguard.engines.base import Message, Prompt
from ragguard.engines.nano.nano_engine import load_network, load_tokenizer, write_checkpoint
from ragguard.engines.prompts import load_prompts
from ragguard.engines.requests import DrawRequest
from ragguard.engines.token_model import MARKER
from training.nano import SHIPPED

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENIZER = load_tokenizer()


def conversations(n: int) -> list[list[Message]]:
    """`n` prompts over all tasks that read documents."""
    prompts = load_prompts("nano")
    found = []
    for number, case in enumerate(world.cases(n, seed=50)):
        texts = [p.text for p in case.pool()[: 1 + number % 8]]
        rendered = (
            prompts.render("answer", texts, question=case.question)
            if number % 2
            else prompts.render("abstention", texts[:1], query=case.question)
        )
        found.append(list(rendered.messages))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nano")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path):
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_exported_size_is_that_of_the_weights(folder: Path) -> None:
    with np.load(SHIPPED / "weights.npz") as arrays:
        size = json.loads(arrays["config"].tobytes())
    assert json.loads((folder / "config.json").read_text()).items() >= size.items()


def test_the_tokenizers_agree(theirs) -> None:
    texts = [
        "a <bos> b <answer> <eos>",
        "NO-RESPONSE's Ada Berg's 'sfoo é\u00a0x",
        "A. Berg, who?\n\tq\x85z\u2028w ǅ",
        MARKER,
        "",
        "<unk>",
    ]
    for messages in [*conversations(60), *([Message("user", text)] for text in texts)]:
        turns = [{"role": m.role, "content": m.content} for m in messages]
        assert theirs.apply_chat_template(
            turns, add_generation_prompt=True, return_dict=False
        ) == TOKENIZER.encode_chat(messages)
    assert theirs(MARKER, add_special_tokens=False)["input_ids"] == TOKENIZER.encode(MARKER)
    for text in ("Ada Berg", "A. Berg", "Who is Ada Berg's spouse?"):
        assert theirs.decode(TOKENIZER.encode(text)) == text


def test_transformers_computes_the_same_on_200_prompts(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    rows = sorted((TOKENIZER.encode_chat(messages) for messages in conversations(200)), key=len)
    greedy = DrawRequest((Prompt((Message("user", ""),)),) * len(rows), 1, 4, 0.0)
    every = range(len(TOKENIZER.words))
    ours = np.array(load_network().logprobs(rows, [()] * len(rows), every, greedy, lambda: None))
    answers = load_network().draw(rows, greedy, lambda: None)
    same = 0
    for first in range(0, 200, 20):
        some = slice(first, first + 20)
        length = len(rows[some][-1])
        padding = [length - len(row) for row in rows[some]]
        written = model.generate(
            torch.tensor([[TOKENIZER.end] * n + row for n, row in zip(padding, rows[some], strict=True)]),
            attention_mask=torch.tensor([[0] * n + [1] * (length - n) for n in padding]),
            do_sample=False,
            temperature=None,
            top_k=None,
            top_p=None,
            max_new_tokens=4,
            return_dict_in_generate=True,
            output_logits=True,
        )
        reference = written.logits[0].log_softmax(-1).numpy()
        assert np.abs(reference - ours[some]).max() < 1e-3
        for tokens, [(expected, *_)] in zip(
            written.sequences[:, length:].tolist(), answers[some], strict=True
        ):
            same += tokens[: len(expected)] == expected
    assert same >= 198
