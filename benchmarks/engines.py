"""Measures what asking well is worth, on a real vLLM server: many prompts a request, many samples a prefill.

    python benchmarks/engines.py                              starts a server here that serves nano
    python benchmarks/engines.py --url http://host:8000/v1    asks one that is there; --device names its hardware

Utility of 200 passages through `label_probs`, beside the same 200 questions one after another, all at once, and
in one request made by hand; samples for SePer of 20 contexts, ten each, beside ten requests for each context.
Everyone asks for the same exact log-probabilities over the same kind of connection. In each round every contender
gets passages that nobody asked about before, the order turns, and figures are medians over the rounds; ratios are
medians of the ratios within a round. Values are compared before times are.

Reading the passages takes the model the same time whoever asks, and on a small machine that is most of it. So the
same is measured once more on a model of a single layer: what is left is what asking costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from support.environments import VLLM
from support.vllm_server import serve

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import world
from ragguard.engines.base import Prompt
from ragguard.engines.connect import connect
from ragguard.engines.http.server import VllmEngine
from ragguard.engines.labels import ABSTENTION
from ragguard.engines.nano.nano_engine import write_checkpoint
from ragguard.engines.prompts import load_prompts
from ragguard.engines.token_model import ProfiledModel, Rendered

PASSAGES, CONTEXTS, SAMPLES, TOKENS = 200, 20, 10, 24
TARGETS = {
    "label_probs: 200 at once / ragguard": (8.0, "least"),
    "label_probs: ragguard / by hand": (1.15, "most"),
    "samples: ten requests each / ragguard": (3.0, "least"),
}

Contender = Callable[[Sequence[Prompt]], Awaitable[Any]]


class ByHand:
    """Puts the benchmark's questions to vLLM without ragguard, as somebody who knows vLLM well would."""

    def __init__(self, url: str, model: str, token: int) -> None:
        self.url, self.model, self.token = url, model, token
        # A server closes what was idle for five seconds; a connection is not used again shortly before.
        limits = httpx.Limits(
            max_connections=PASSAGES, max_keepalive_connections=PASSAGES, keepalive_expiry=2.0
        )
        self.client = httpx.AsyncClient(timeout=600, limits=limits)

    async def one(self, prompt: Prompt) -> float:
        body = {
            "messages": _messages(prompt), "max_tokens": 1, "temperature": 1.0, "logprobs": True,
            "logprob_token_ids": [self.token], "return_tokens_as_token_ids": True,
        }  # fmt: skip
        (choice,) = (await self._post("/chat/completions", body))["choices"]
        listed = choice["logprobs"]["content"][0]["top_logprobs"]
        return next(
            math.exp(entry["logprob"]) for entry in listed if entry["token"] == f"token_id:{self.token}"
        )

    async def one_after_another(self, prompts: Sequence[Prompt]) -> list[float]:
        return [await self.one(prompt) for prompt in prompts]

    async def at_once(self, prompts: Sequence[Prompt]) -> list[float]:
        return list(await asyncio.gather(*(self.one(prompt) for prompt in prompts)))

    async def chat_batch(self, prompts: Sequence[Prompt]) -> list[float]:
        body = {
            "messages": [_messages(prompt) for prompt in prompts], "max_tokens": 1, "temperature": 1.0,
            "logprobs": True, "logprob_token_ids": [self.token], "return_tokens_as_token_ids": True,
        }  # fmt: skip
        choices = sorted(
            (await self._post("/chat/completions/batch", body))["choices"], key=lambda c: c["index"]
        )
        name = f"token_id:{self.token}"
        return [
            next(
                math.exp(entry["logprob"])
                for entry in c["logprobs"]["content"][0]["top_logprobs"]
                if entry["token"] == name
            )
            for c in choices
        ]

    async def text_batch(self, texts: Sequence[Rendered]) -> list[float]:
        body = {
            "prompt": texts, "max_tokens": 1, "temperature": 1.0, "logprobs": 1, "add_special_tokens": False,
            "logprob_token_ids": [self.token], "return_tokens_as_token_ids": True,
        }  # fmt: skip
        choices = sorted((await self._post("/completions", body))["choices"], key=lambda c: c["index"])
        return [math.exp(c["logprobs"]["top_logprobs"][0][f"token_id:{self.token}"]) for c in choices]

    async def samples(self, prompts: Sequence[Prompt]) -> list[Any]:
        body = {"max_tokens": TOKENS, "temperature": 1.0, "logprobs": True}
        calls = [
            self._post("/chat/completions", {**body, "messages": _messages(prompt), "seed": seed})
            for prompt in prompts
            for seed in range(SAMPLES)
        ]
        return list(await asyncio.gather(*calls))

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = await self.client.post(self.url + path, json={"model": self.model, **body})
        answer.raise_for_status()
        return answer.json()


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in prompt.messages]


def fresh_passages() -> Iterator[tuple[str, str]]:
    """Returns pairs (question, passage), never the same twice."""
    for seed in range(10**6):
        for case in world.cases(50, seed=1000 + seed):
            for passage in (*case.gold, *case.distractors):
                yield case.question, passage.text


async def rounds(
    contenders: dict[str, Contender], prompts: Callable[[], list[Prompt]], count: int
) -> dict[str, list[float]]:
    """Seconds of each contender in each round; the first round warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(count + 1):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            asked = prompts()
            began = time.perf_counter()
            await contenders[name](asked)
            if number:
                times[name].append(time.perf_counter() - began)
    return times


def ratio(times: dict[str, list[float]], above: str, below: str) -> float:
    """The median over the rounds of one contender's time over another's."""
    return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))


async def measure(url: str, count: int) -> dict[str, Any]:
    """All of it, on one server."""
    engine = VllmEngine(url)
    stacked = connect(url)
    found = await engine.model()
    assert isinstance(found, ProfiledModel)
    info, tokens = found.info, found.model.tokens
    sets = load_prompts(info.prompts)
    supply = fresh_passages()
    ((token, *_),) = await tokens.continuations([found.prefix + ABSTENTION])
    hand = ByHand(info.location, info.model, token)

    def questions() -> list[Prompt]:
        drawn = [next(supply) for _ in range(PASSAGES)]
        return [sets.render("abstention", [passage], query=question) for question, passage in drawn]

    def contexts() -> list[Prompt]:
        drawn = [[next(supply) for _ in range(3)] for _ in range(CONTEXTS)]
        return [
            sets.render("answer", [passage for _, passage in some], question=some[0][0]) for some in drawn
        ]

    same = questions()
    rendered = await tokens.render(same)
    truth = (await engine.label_probs(same, [ABSTENTION])).p[:, 0]
    differences = {
        "chat batch by hand": np.abs(truth - await hand.chat_batch(same)).max(),
        "text batch by hand": np.abs(truth - await hand.text_batch(rendered)).max(),
        "all at once": np.abs(truth - await hand.at_once(same)).max(),
    }

    # Made beforehand: the hand knows the template by heart.
    prepared = [questions() for _ in range((count + 1) * 6)]
    texts = {p: text for some in prepared for p, text in zip(some, await tokens.render(some), strict=True)}

    async def text_by_hand(prompts: Sequence[Prompt]) -> list[float]:
        return await hand.text_batch([texts[prompt] for prompt in prompts])

    labels = partial(engine.label_probs, labels=[ABSTENTION])
    label_times = await rounds(
        {
            "ragguard": labels,
            "ragguard, all layers": partial(stacked.label_probs, labels=[ABSTENTION]),
            "one request by hand (texts)": text_by_hand,
            "one request by hand (chat batch)": hand.chat_batch,
            "200 at once": hand.at_once,
            "200 one after another": hand.one_after_another,
        },
        prepared.pop,
        count,
    )
    sample_times = await rounds(
        {
            "ragguard": partial(engine.sample, n=SAMPLES, max_tokens=TOKENS, seed=1),
            "ten requests each": hand.samples,
        },
        contexts,
        count,
    )
    usage = (await engine.label_probs(same, [ABSTENTION])).usage
    await hand.client.aclose()
    await engine.aclose()
    await stacked.aclose()
    by_hand = min(
        ("one request by hand (texts)", "one request by hand (chat batch)"),
        key=lambda name: statistics.median(label_times[name]),
    )
    ratios = {
        "label_probs: 200 at once / ragguard": ratio(label_times, "200 at once", "ragguard"),
        "label_probs: ragguard / by hand": ratio(label_times, "ragguard", by_hand),
        "label_probs: 200 one after another / ragguard": ratio(
            label_times, "200 one after another", "ragguard"
        ),
        "label_probs: all layers / ragguard": ratio(label_times, "ragguard, all layers", "ragguard"),
        "samples: ten requests each / ragguard": ratio(sample_times, "ten requests each", "ragguard"),
    }
    return {
        "model": info.model,
        "server": next(iter(info.notes), ""),
        "rounds": count,
        "tokens_per_prompt": round(usage.prompt_tokens / PASSAGES, 1),
        "largest_difference": {name: float(value) for name, value in differences.items()},
        "label_probs_seconds": {name: statistics.median(times) for name, times in label_times.items()},
        "fastest_by_hand": by_hand,
        "sample_seconds": {name: statistics.median(times) for name, times in sample_times.items()},
        "ratios": ratios,
        "targets": {
            name: {"wanted": f"{'≥' if kind == 'least' else '≤'} {bound}", "got": round(ratios[name], 2),
                   "met": ratios[name] >= bound if kind == "least" else ratios[name] <= bound}
            for name, (bound, kind) in TARGETS.items()
        },
    }  # fmt: skip


def show(figures: dict[str, Any]) -> None:
    """Prints the figures as tables."""
    table = Table(
        "contender",
        "median s",
        title=f"{PASSAGES} passages, about {figures['tokens_per_prompt']} tokens each",
    )
    for name, seconds in figures["label_probs_seconds"].items():
        table.add_row(name, f"{seconds:.3f}")
    for name, seconds in figures["sample_seconds"].items():
        table.add_row(f"{CONTEXTS} × {SAMPLES} samples: {name}", f"{seconds:.3f}")
    goals = Table("ratio", "wanted", "got", "met")
    for name, goal in figures["targets"].items():
        goals.add_row(name, goal["wanted"], f"{goal['got']:.2f}", "yes" if goal["met"] else "NO")
    Console().print(table, goals)
    if "single_layer" in figures:
        rest = Table("ratio on a model of a single layer", "got")
        for name, got in figures["single_layer"]["ratios"].items():
            rest.add_row(name, f"{got:.2f}")
        Console().print(rest)


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[str]:
    """The address of a server of nano, started with these arguments."""
    if not VLLM.ready():
        sys.exit("no vLLM here: run `make test-vllm` once, or give --url")
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        with serve(Path(folder), "nano", *arguments) as started:
            yield started.url


def measure_here(count: int) -> dict[str, Any]:
    """Measures nano on a server of our own, and beside it what asking alone costs."""
    with server() as url:
        figures = asyncio.run(measure(url, count))
    with server("--load-format", "dummy", "--hf-overrides", json.dumps({"num_hidden_layers": 1})) as url:
        alone = asyncio.run(measure(url, count))
    kept = ("largest_difference", "label_probs_seconds", "sample_seconds", "ratios")
    return {**figures, "single_layer": {name: alone[name] for name in kept}}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--url", help="a vLLM server that is there")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--device", default="CPU", help="what the server runs on")
    options.add_argument("--name", default="engines", help="the name of the file, without .json")
    arguments = parse(options, rounds=2)
    url, count = arguments.url, arguments.rounds
    figures = asyncio.run(measure(url, count)) if url else measure_here(count)
    show(figures)
    print(record(arguments.name, {"device": arguments.device, **figures}))


if __name__ == "__main__":
    main()
