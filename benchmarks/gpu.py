"""The cost of scores on a GPU: models of 135M, 1B and 8B parameters with random weights, through transformers.

    python benchmarks/gpu.py                       at most 8 minutes on one GPU
    python benchmarks/gpu.py --peak-tflops 312     the limit of another GPU than an H200 (bfloat16, dense)
    python benchmarks/gpu.py --quick               tiny models on the CPU

The weights are made on the device, in bfloat16, from a configuration: nothing is downloaded. What they say means
nothing, and what they cost is what real weights cost. The tokenizer is nano's: one word is one token. Measured, each as
the median of some rounds:

- prefill: tokens a second that are read, beside the arithmetic limit, the peak over two operations a parameter;
- a ΔSePer: ten answers of 24 tokens, without and with five passages (comparing them is not among it); the paper of
  SePer has 0.24 s on an A800;
- a Δ likelihood: one reference, without and with five passages;
- the credit of three hops: one reference after each of the eight sets of hops;
- a guard's call about ten passages, of 1, 8 and 64 at once.

A model that would not end in the time that is left is left out, and said.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser
from ragguard import DistractorGuard, Passage, world
from ragguard.engines.base import Engine, Prompt
from ragguard.engines.connect import connect
from ragguard.engines.local.hf import CausalModel
from ragguard.engines.local.local_engine import Loaded, LocalEngine, Worker, described
from ragguard.engines.local.pretrained import HfTokens
from ragguard.engines.nano.nano_engine import write_checkpoint
from ragguard.engines.prompts import load_prompts
from ragguard.scorers.probes import belief, likelihood

PAPER_SEPER_S = 0.24
CONTEXT, BATCH_TOKENS = 8192, 131_072


class Size(NamedTuple):
    """The size of a Llama."""

    hidden: int
    inner: int
    layers: int
    heads: int
    shared: int
    vocabulary: int


SIZES = {
    "135M": Size(576, 1536, 30, 9, 3, 49_152),
    "1B": Size(2048, 8192, 16, 32, 8, 128_256),
    "8B": Size(4096, 14_336, 32, 32, 8, 128_256),
}
QUICK = {"135M": Size(32, 64, 2, 4, 2, 4096), "1B": Size(64, 128, 2, 4, 2, 4096)}
AT_ONCE = (1, 2) if is_quick() else (1, 8, 64)
ROUNDS, PREFILL_PROMPTS, PREFILL_WORDS = (1, 2, 60) if is_quick() else (3, 32, 1000)
LEFT_S = 60.0
"""No further model is begun with less than this much time left."""


def opened(size: Size, device: str, folder: Path) -> tuple[LocalEngine, int]:
    """Returns an engine on random weights of a size, and how many parameters these are."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.hidden, intermediate_size=size.inner,
        num_hidden_layers=size.layers, num_attention_heads=size.heads, num_key_value_heads=size.shared,
        max_position_embeddings=CONTEXT, tie_word_embeddings=size.hidden < 4096,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device != "cpu" else torch.float32)
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(before)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = HfTokens(tokenizer, [int(tokenizer.eos_token_id)])
    info = described("random Llama", "hf", f"random {size}", CONTEXT, f", on {device}")
    loaded = Loaded(CausalModel(model, tokens.ends, BATCH_TOKENS), tokens, info)
    return LocalEngine(Worker("random Llama", lambda: loaded)), sum(one.numel() for one in model.parameters())


async def seconds(work: Callable[[int], Awaitable[Any]]) -> float:
    """Returns the median seconds of some rounds, each with texts that were not asked about before, after one more."""
    await work(-1)
    taken = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


async def measure(bare: LocalEngine, parameters: int, peak_tflops: float | None) -> dict[str, Any]:
    """Returns the figures of one model."""
    prompts = load_prompts("nano")
    cases = world.cases(8, seed=9)
    passages = [passage.text for case in cases for passage in case.pool()]
    words = " ".join(passages * 20).split()
    read = 0

    def texts(number: int, size: int) -> list[str]:
        return [passages[(5 * number + at) % len(passages)] for at in range(size)]

    async def prefill(number: int) -> None:
        start = 7 * (number + 1)
        long = [" ".join(words[start + at : start + at + PREFILL_WORDS]) for at in range(PREFILL_PROMPTS)]
        nonlocal read
        read = (await bare.label_probs(long, ["A", "B"])).usage.prompt_tokens

    def contexts(number: int) -> list[Prompt]:
        question = cases[number % len(cases)].question
        return [belief(prompts, question, some, n=1, seed=number).prompt for some in ([], texts(number, 5))]

    async def seper(number: int) -> None:
        await bare.sample(contexts(number), n=10, max_tokens=24, seed=number)

    async def given(number: int, sets: Sequence[Sequence[str]]) -> None:
        asked = [likelihood(prompts, cases[number].question, some, "Ada Berg").prompt for some in sets]
        await bare.continuations(
            [Prompt(one.messages, one.cuttable) for one in asked], [[one.text] for one in asked]
        )

    async def credit(number: int) -> None:
        hops = [texts(number + at, 5) for at in range(3)]
        subsets = chain.from_iterable(combinations(hops, size) for size in range(4))
        await given(number, [list(chain.from_iterable(some)) for some in subsets])

    async def guarded(engine: Engine, number: int, at_once: int) -> None:
        guard = DistractorGuard(engine, budget_ms=600_000)
        calls = [
            guard.aprune(
                f"{cases[at % 8].question} {number} {at}", [Passage(text) for text in texts(number + at, 10)]
            )
            for at in range(at_once)
        ]
        await asyncio.gather(*calls)

    prefill_s = await seconds(prefill)
    rate = read / prefill_s
    limit = None if peak_tflops is None else peak_tflops * 1e12 / (2 * parameters)
    figures: dict[str, Any] = {
        "parameters": parameters,
        "prefill_tokens_a_second": round(rate),
        "arithmetic_limit": limit and round(limit),
        "share_of_limit": limit and round(rate / limit, 3),
        "delta_seper_s": round(await seconds(seper), 4),
        "delta_likelihood_s": round(await seconds(lambda number: given(number, ([], texts(number, 5)))), 4),
        "credit_of_three_hops_s": round(await seconds(credit), 4),
    }
    engine = connect(bare)
    for at_once in AT_ONCE:

        async def calls(number: int, at_once: int = at_once) -> None:
            await guarded(engine, number, at_once)

        figures[f"guard_{at_once}_at_once_s"] = round(await seconds(calls), 4)
    await engine.aclose()
    return figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--device", default="cuda", help="the device, such as cuda:1")
    options.add_argument("--peak-tflops", type=float, default=989.0, help="the device's peak in bfloat16")
    options.add_argument(
        "--seconds", type=float, default=480.0, help="after how long no further model is begun"
    )
    given = parse(options, device="cpu", peak_tflops=None, seconds=120.0)
    began, figures, left_out = time.monotonic(), dict[str, Any](), list[str]()
    if given.device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("no GPU is here: --quick runs tiny models on the CPU")
        figures["device"] = torch.cuda.get_device_name(given.device)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        for name, size in (QUICK if is_quick() else SIZES).items():
            if given.seconds - (time.monotonic() - began) < (5 if is_quick() else LEFT_S):
                left_out.append(name)
                continue
            engine, parameters = opened(size, given.device, Path(folder))
            figures[name] = asyncio.run(measure(engine, parameters, given.peak_tflops))
            print(name, figures[name], flush=True)
            done = {"models": figures, "left_out": left_out, "paper_delta_seper_s": PAPER_SEPER_S}
            print(record("gpu", done | {"seconds": round(time.monotonic() - began, 1)}), flush=True)
    if left_out:
        print(f"left out, since the time was over: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
