"""Measures how fast nano is: `python benchmarks/nano.py`, on two idle cores. Writes nano.json."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import world
from ragguard.engines.base import Prompt
from ragguard.engines.nano.nano_engine import NanoEngine, load_tokenizer
from ragguard.engines.prompts import load_prompts
from ragguard.world import Counts

TARGETS = {"label_probs_100x100_s": 1.0, "sample_20x10_s": 0.5, "load_s": 0.2}
_LOAD = (
    "import time; t = time.perf_counter();"
    "from ragguard.engines.nano.nano_engine import load_network;"
    "from ragguard.engines.nano.nano_engine import load_tokenizer;"
    "import numpy; t = time.perf_counter(); load_network(); load_tokenizer(); print(time.perf_counter() - t)"
)


def prompts_of_100_tokens(n: int) -> list[Prompt]:
    """Prompts about different documents, about a hundred tokens each: nothing to share."""
    prompts, length = load_prompts("nano"), load_tokenizer().encode_chat
    found = []
    for case in world.cases(n, seed=70, distractors=Counts(3, 3, 0, 6)):
        texts = [case.gold[0].text]
        for passage in case.distractors:
            texts.append(passage.text)
            prompt = prompts.render("abstention", texts, query=case.question)
            if len(length(prompt.messages)) >= 100:
                break
        found.append(prompt)
    return found


async def best(work: Callable[[], Awaitable[object]], rounds: int) -> list[float]:
    """Seconds of each round, after one that does not count."""
    await work()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - started)
    return seconds


async def measure(loads: list[float], rounds: int) -> dict[str, object]:
    engine, prompts = NanoEngine(), load_prompts("nano")
    asked = prompts_of_100_tokens(100)
    tokens = sum(len(load_tokenizer().encode_chat(p.messages)) for p in asked)
    answers = [
        prompts.render("answer", [c.gold[0].text], question=c.question) for c in world.cases(20, seed=71)
    ]
    labels = await best(lambda: engine.label_probs(asked, ["NO-RESPONSE"]), rounds)
    samples = await best(lambda: engine.sample(answers, n=10, max_tokens=4, seed=1), rounds)
    found = {
        "label_probs_100x100_s": (min(labels), statistics.median(labels)),
        "sample_20x10_s": (min(samples), statistics.median(samples)),
        "load_s": (min(loads), statistics.median(loads)),
    }
    return {
        "prompt_tokens": tokens,
        "figures": {
            name: {
                "best": best_,
                "median": median,
                "target": TARGETS[name],
                "reached": median <= TARGETS[name],
            }
            for name, (best_, median) in found.items()
        },
    }


def main() -> None:
    """Measures and records."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    rounds = parse(options, rounds=1).rounds
    spent = [float(subprocess.check_output([sys.executable, "-c", _LOAD])) for _ in range(min(5, rounds))]
    result = asyncio.run(measure(spent, rounds))
    print(record("nano", result).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
