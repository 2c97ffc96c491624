"""Measures what the guard does for the answers, and whether it is on time.

    python benchmarks/guard.py                 answers, gold kept and calibration, on nano and its world
    python benchmarks/guard.py --on-time       deadlines, against a server of fixed latency
    python benchmarks/guard.py --hostile       how often a hostile text changes the verdict on its own passage
    python benchmarks/guard.py --cases 100     smaller, for a look

Answers: held-out questions of one and two hops with 0 to 8 distractors a hop; two-hop questions are guarded hop
by hop with each hop's own query. nano reads what is left and answers or abstains.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.guard_on_time import on_time
from benchmarks.machine import RESULTS, record
from benchmarks.options import parse, parser
from ragguard import DistractorGuard, world
from ragguard.engines.base import Engine
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.errors import UnfitText
from ragguard.guard.calibration import choose_threshold
from ragguard.metrics import exact_match
from ragguard.metrics.conformal import Promise
from ragguard.records import Passage
from ragguard.world import Case, Counts

# No contradictions: on its own, a passage that lies reads just like one that does not, to any judge.
AROUND = Counts(same_relation=3, same_subject=3, contradiction=0, unrelated=3)
MAX_LOSS = 0.05
SPLITS = 20
DRAWS = 4000
USEFUL = 0.5
"""The utility from which a passage counts as useful, where a hostile text tries to change that."""
NO = "NO-RESPONSE"


@dataclass(slots=True)
class Hop:
    """A retrieval: its query, the passages that were found, and which of them are gold."""

    query: str
    passages: list[Passage]
    gold: list[bool]


@dataclass(slots=True)
class Outcome:
    """The results of all questions with one way to drop passages."""

    kept: list[list[int]]
    """The passages that were kept for each hop of each question, in order."""
    ms: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def hops_of(case: Case, rng: random.Random) -> list[Hop]:
    """The retrievals of a question: each hop's gold among 0 to 8 distractors of that hop."""
    found = []
    for number, query in enumerate(case.sub_questions if case.hops == 2 else [case.question]):
        own = [
            passage for passage in case.distractors if passage.metadata.get("hop", number + 1) == number + 1
        ]
        near = rng.sample(own, min(len(own), rng.randint(0, 8)))
        mixed = [case.gold[number], *near]
        rng.shuffle(mixed)
        found.append(Hop(query, mixed, [passage is case.gold[number] for passage in mixed]))
    return found


async def cut(hops: Sequence[Hop], way: Callable[[Hop], Awaitable[list[int]]]) -> Outcome:
    """Cuts every retrieval, one after another, and times each."""
    outcome = Outcome([])
    for hop in hops:
        clock = time.perf_counter()
        outcome.kept.append(await way(hop))
        outcome.ms.append((time.perf_counter() - clock) * 1e3)
    return outcome


async def read(engine: Engine, cases: Sequence[Case], hops: Sequence[list[Hop]], outcome: Outcome) -> None:
    """Adds to the outcome what nano answers from the passages that were kept."""
    prompts, left = load_prompts("nano"), iter(outcome.kept)
    asked = []
    for case, own in zip(cases, hops, strict=True):
        texts = [hop.passages[place].text for hop in own for place in next(left)]
        asked.append(prompts.render("abstention", texts, query=case.question))
    for at in range(0, len(asked), 128):
        drawn = await engine.sample(asked[at : at + 128], n=1, max_tokens=6, temperature=0.0)
        outcome.said += [one[0].text for one in drawn]


def verdicts(cases: Sequence[Case], said: Sequence[str]) -> NDArray[np.str_]:
    """Returns correct, abstained or wrong, for each question."""
    return np.array([
        "abstained" if text.startswith(NO)
        else "correct" if any(exact_match(text, reference) for reference in case.references)
        else "wrong"
        for case, text in zip(cases, said, strict=True)
    ])  # fmt: skip


def summary(hops: Sequence[Hop], outcome: Outcome, found: NDArray[np.str_]) -> dict[str, Any]:
    gold = [place in kept for hop, kept in zip(hops, outcome.kept, strict=True)
            for place, is_gold in enumerate(hop.gold) if is_gold]  # fmt: skip
    junk = [place not in kept for hop, kept in zip(hops, outcome.kept, strict=True)
            for place, is_gold in enumerate(hop.gold) if not is_gold]  # fmt: skip
    shares = {kind: round(float(np.mean(found == kind)), 4) for kind in ("correct", "abstained", "wrong")}
    return shares | {
        "gold_kept": round(float(np.mean(gold)), 4),
        "distractors_dropped": round(float(np.mean(junk)), 4),
        "added_ms_median": round(float(np.median(outcome.ms)), 2) if outcome.ms else 0.0,
        "added_ms_p99": round(float(np.percentile(outcome.ms, 99)), 2) if outcome.ms else 0.0,
    }


def against(base: NDArray[np.str_], other: NDArray[np.str_]) -> dict[str, Any]:
    """Returns a paired bootstrap over questions: the ratio of wrong answers, the difference of correct ones."""
    rng = np.random.default_rng(7)
    drawn = rng.integers(0, len(base), (DRAWS, len(base)))
    wrong, right = (base == "wrong", other == "wrong"), (base == "correct", other == "correct")
    ratios = wrong[1][drawn].mean(1) / np.maximum(wrong[0][drawn].mean(1), 1e-9)
    gains = right[1][drawn].mean(1) - right[0][drawn].mean(1)

    def interval(values: NDArray[np.float64]) -> list[float]:
        return [round(float(edge), 4) for edge in np.percentile(values, [2.5, 97.5])]

    return {
        "wrong_ratio": round(float(wrong[1].mean() / max(wrong[0].mean(), 1e-9)), 4),
        "wrong_ratio_95": interval(ratios),
        "correct_gain": round(float(right[1].mean() - right[0].mean()), 4),
        "correct_gain_95": interval(gains),
    }


def calibration(utilities: list[list[float | None]], hops: Sequence[Hop]) -> dict[str, Any]:
    """The promise, on splits of the retrievals: half to calibrate, the rest to see what is lost."""
    losses, dropped = [], []
    for seed in range(SPLITS):
        order = random.Random(seed).sample(range(len(hops)), len(hops))
        learn, test = order[: len(order) // 2], order[len(order) // 2 :]
        learnt = [utilities[i] for i in learn], [hops[i].gold for i in learn]
        threshold = choose_threshold(*learnt, Promise(MAX_LOSS), 1).threshold
        lost, gone = [], []
        for i in test:
            kept = kept_at(utilities[i], threshold)
            lost.append(
                float(np.mean([place not in kept for place, is_gold in enumerate(hops[i].gold) if is_gold]))
            )
            gone += [place not in kept for place, is_gold in enumerate(hops[i].gold) if not is_gold]
        losses.append(float(np.mean(lost)))
        dropped.append(float(np.mean(gone)))
    stderr = float(np.std(losses, ddof=1) / len(losses) ** 0.5)
    return {
        "max_gold_loss": MAX_LOSS, "splits": SPLITS, "gold_loss": round(float(np.mean(losses)), 5),
        "stderr": round(stderr, 5), "reached": float(np.mean(losses)) <= MAX_LOSS + stderr,
        "distractors_dropped": round(float(np.mean(dropped)), 4),
    }  # fmt: skip


def kept_at(utilities: Sequence[float | None], threshold: float, min_keep: int = 1) -> list[int]:
    """Returns the positions of the passages that the guard keeps at a threshold."""
    value = [np.inf if u is None else u for u in utilities]
    kept = [place for place, u in enumerate(value) if u >= threshold]
    if len(kept) < min_keep:
        kept = sorted(sorted(range(len(value)), key=lambda place: -value[place])[:min_keep])
    return kept


async def helps(n: int) -> dict[str, Any]:
    """The table of answers."""
    from benchmarks.guard_peers import ChainFilter, Similarity

    rng = random.Random(2026)
    cases = [case for hops in (1, 2) for case in world.cases(n // 2, seed=81, hops=hops, distractors=AROUND)]
    hops = [hops_of(case, rng) for case in cases]
    flat = [hop for own in hops for hop in own]
    learnt = [
        hop for k in (1, 2) for case in world.cases(n // 4, seed=82, hops=k, distractors=AROUND)
        for hop in hops_of(case, rng)
    ]  # fmt: skip
    engine = connect("nano")
    guard = DistractorGuard(engine, budget_ms=60_000)

    async def utilities_of(these: Sequence[Hop]) -> list[list[float | None]]:
        return [[item.utility for item in await guard.judged(hop.query, hop.passages)] for hop in these]

    async def everything(hop: Hop) -> list[int]:
        return list(range(len(hop.passages)))

    async def guarded(hop: Hop) -> list[int]:
        decision = await guard.aprune(hop.query, hop.passages)
        gone = {drop.position - 1 for drop in decision.dropped}
        return [place for place in range(len(hop.passages)) if place not in gone]

    async def oracle(hop: Hop) -> list[int]:
        return [place for place, is_gold in enumerate(hop.gold) if is_gold]

    ways: dict[str, Outcome] = {"no guard": await cut(flat, everything), "oracle": await cut(flat, oracle)}
    ways["guard, threshold -0.2"] = await cut(flat, guarded)
    print("guarded", flush=True)
    chain = ChainFilter(connect("nano"))
    ways["LangChain LLMChainFilter"] = await cut(flat, lambda hop: chain.kept(hop.query, hop.passages))
    print("filtered", flush=True)
    promise, gold = Promise(MAX_LOSS), [hop.gold for hop in learnt]
    threshold = choose_threshold(await utilities_of(learnt), gold, promise, 1).threshold
    utilities = await utilities_of(flat)
    ways[f"guard, calibrated at {MAX_LOSS}"] = Outcome(
        [kept_at(values, threshold) for values in utilities], ways["guard, threshold -0.2"].ms
    )
    plain = Similarity()
    likeness = [list(plain.scores(hop.query, hop.passages)) for hop in learnt]
    cutoff = choose_threshold(likeness, gold, promise, 0).threshold
    similar = Similarity(cutoff)

    async def alike(hop: Hop) -> list[int]:
        return similar.kept(hop.query, hop.passages)

    ways["LlamaIndex SimilarityPostprocessor"] = await cut(flat, alike)
    table, by_hops = {}, {}
    base: NDArray[np.str_] | None = None
    for name, outcome in ways.items():
        await read(engine, cases, hops, outcome)
        found = verdicts(cases, outcome.said)
        base = found if base is None else base
        table[name] = summary(flat, outcome, found) | ({} if found is base else against(base, found))
        by_hops[name] = {
            f"{k} hop": {
                kind: round(float(np.mean(found[[case.hops == k for case in cases]] == kind)), 4)
                for kind in ("correct", "abstained", "wrong")
            }
            for k in (1, 2)
        }
    await engine.aclose()
    return {
        "cases": len(cases), "retrievals": len(flat), "model": (await connect("nano").info()).fingerprint,
        "thresholds": {"guard": round(threshold, 4), "similarity": round(cutoff, 4)},
        "answers": table, "answers_by_hops": by_hops, "calibration": calibration(utilities, flat),
    }  # fmt: skip


async def utilities_of(guard: DistractorGuard, query: str, texts: Sequence[str]) -> list[float | None] | None:
    """Returns the utility of each text; None if nano refuses one, as it does with too many unknown words."""
    try:
        return [(await guard.judged(query, [Passage(text)]))[0].utility for text in texts]
    except UnfitText:
        return None


async def hostile(n: int) -> dict[str, Any]:
    """Passages with a hostile text before or behind them: how much junk then stays, how much gold then goes."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.hostile_passages import HOSTILE

    engine = connect("nano")
    guard = DistractorGuard(engine, budget_ms=60_000)
    cases = world.cases(n, seed=83, distractors=AROUND)
    refused = 0
    junk: dict[str, list[bool]] = {}
    gold: dict[str, list[bool]] = {}
    for number, (kind, text) in enumerate(HOSTILE):
        for case in cases[number % 4 :: 4]:
            for passage, flips in ((case.distractors[number % 6], junk), (case.gold[0], gold)):
                written = f"{text}\n{passage.text}" if number % 2 else f"{passage.text}\n{text}"
                utilities = await utilities_of(guard, case.question, (passage.text, written))
                if utilities is None:
                    refused += 1
                    continue
                before, after = utilities
                stays = [value is None or value >= USEFUL for value in (before, after)]
                if stays[0] is (flips is gold):
                    flips.setdefault(kind, []).append(stays[0] is not stays[1])
    await engine.aclose()

    def shares(flips: dict[str, list[bool]]) -> dict[str, float]:
        every = [one for own in flips.values() for one in own]
        return {kind: round(float(np.mean(own)), 4) for kind, own in flips.items()} | {
            "all": round(float(np.mean(every)), 4), "tried": len(every),
        }  # fmt: skip

    return {
        "measured": time.strftime("%Y-%m-%d"), "texts": len(HOSTILE), "threshold": USEFUL,
        "junk_that_stays": shares(junk), "gold_that_goes": shares(gold), "refused": refused,
    }  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--cases", type=int, default=1200)
    options.add_argument("--on-time", action="store_true")
    options.add_argument("--hostile", action="store_true")
    args = parse(options, cases=40)
    before = RESULTS / "guard.json"
    figures: dict[str, Any] = {}
    if before.exists():
        figures = {
            k: v for k, v in json.loads(before.read_text()).items() if k not in ("measured", "machine")
        }
    if args.quick or args.on_time:
        figures["on_time"] = on_time()
    if args.quick or args.hostile:
        figures["hostile"] = asyncio.run(hostile(min(args.cases // 10 if args.quick else args.cases, 40)))
    if not (args.on_time or args.hostile):
        figures["helps"] = asyncio.run(helps(args.cases))
    print(figures)
    print(record("guard", figures))


if __name__ == "__main__":
    main()
