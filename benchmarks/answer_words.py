"""Measures what it costs to compare an answer with references and passages by their words: no model is asked.

    make bench-answer_words

CPU milliseconds of one run of four hops with five passages each, of some 350 words; the target is under 1 ms. The
answer's name and year stand in one passage of each hop (`usual_ms`), and in all of them (`everywhere_ms`): only texts
that may have them are read word by word.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import Passage, RetrievalStep, Run
from ragguard.engines.connect import connect
from ragguard.scorers.answer_words import AnswerWords
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import Ask
from ragguard.scorers.view import view_run

HOPS, PASSAGES, TARGET_MS = 4, 5, 1.0


def make_run(number: int, everywhere: bool) -> Run:
    """Makes a run whose passages are in no other run."""
    sold = "The mill on the river sold wool to the towns along the lake. " * 28
    founded, other = "was founded by Cara Dahl in 1931", "has changed hands three times since the war"
    steps = [
        RetrievalStep(
            id=f"s{hop}", run_id=f"r{number}", index=hop, turn=hop, query=f"Who founded mill {number}?",
            passages=[
                Passage(f"Mill {number}.{hop}.{at} {other if at and not everywhere else founded}. {sold}")
                for at in range(PASSAGES)
            ],
        )
        for hop in range(HOPS)
    ]  # fmt: skip
    return Run(
        id=f"r{number}", question=f"Who founded mill {number}?", answer="It was Cara Dahl in 1931.",
        references=["Cara Dahl"], steps=steps,
    )  # fmt: skip


async def no_model(prompts: object) -> NoReturn:
    """Raises an error: this scorer asks no model."""
    raise AssertionError(f"asked {prompts}")


async def cost(everywhere: bool, runs: int) -> float:
    """Returns the median CPU milliseconds of a run."""
    setting = await ScoringPipeline(connect("nano"), scorers=["words"])._ready()
    times = []
    for number in range(runs):
        view = view_run(make_run(number, everywhere), setting)
        began = time.process_time()
        await AnswerWords().score(view, cast("Ask", no_model))
        times.append((time.process_time() - began) * 1000)
    return round(statistics.median(times), 3)


async def measure(runs: int) -> dict[str, Any]:
    """Returns what is recorded."""
    usual, everywhere = await cost(False, runs), await cost(True, runs)
    return {"usual_ms": usual, "everywhere_ms": everywhere, "target_ms": TARGET_MS, "runs": runs}


def main() -> None:
    """Measures, prints and records."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=200)
    print(record("answer_words", asyncio.run(measure(parse(options, runs=5).runs))).read_text())


if __name__ == "__main__":
    main()
