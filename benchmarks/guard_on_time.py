"""Measures whether the guard is on time: a server of fixed latency, many callers, budgets that must hold."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply, Request

from benchmarks.options import is_quick
from ragguard import DistractorGuard, Passage
from ragguard.engines.connect import connect
from ragguard.engines.prompts import load_prompts
from ragguard.guard import UtilityThreshold
from ragguard.scorers.probes import abstention, relevance

LATENCIES_MS: tuple[int | None, ...] = (0, None) if is_quick() else (0, 50, 200, 500, None)
"""None: the server takes requests and never answers."""
BUDGETS_MS = (100, 300)
PASSAGES = (1, 5) if is_quick() else (1, 5, 20, 50)
CALLERS, ALONE = (5, 2) if is_quick() else (200, 30)


def serve(latency_ms: float | None, tell: Connection) -> None:
    """A server in a process of its own, so that its work is not ours: answers labels after the latency."""
    model = FakeModel()

    def handle(request: Request) -> Reply:
        reply = model.handle(request)
        if request.path != "/v1/completions":
            return reply
        (first, *_) = request.json["prompt"]
        if "founded firm" not in (first if isinstance(first, str) else model.text(first)):
            return reply  # the server is only being looked at
        return replace(reply, wait_s=3600.0 if latency_ms is None else latency_ms / 1e3)

    async def run() -> None:
        async with MisbehavingServer(handle) as server:
            tell.send(server.url)
            await asyncio.to_thread(tell.recv)

    asyncio.run(run())


def on_time() -> dict[str, Any]:
    """Measures the guard's punctuality three times: with Python's garbage collector as it is, after `gc.freeze()`,
    which a service should call once it has started, and without the garbage collector, whose pauses no budget can
    foresee."""
    pauses: list[float] = []
    began = 0.0

    def watch(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append((time.perf_counter() - began) * 1e3)

    gc.callbacks.append(watch)
    figures = asyncio.run(_on_time(quick=True)) | {
        "longest_collection_ms": round(max(pauses, default=0.0), 1)
    }
    names = ("p99_over_ms", "p99_reached", "longest_collection_ms")
    pauses.clear()
    gc.collect()
    gc.freeze()
    frozen = asyncio.run(_on_time()) | {"longest_collection_ms": round(max(pauses, default=0.0), 1)}
    gc.unfreeze()
    gc.callbacks.remove(watch)
    gc.disable()
    without = asyncio.run(_on_time()) | {"longest_collection_ms": 0.0}
    gc.enable()
    return figures | {
        "after_freeze": {name: frozen[name] for name in names},
        "without_collector": {name: without[name] for name in names},
    }


async def _on_time(quick: bool = False) -> dict[str, Any]:
    """Measures how late decisions are, for each latency, budget and number of passages; then the same without a
    guard."""
    figures: dict[str, Any] = {}
    late: list[float] = []
    floor: dict[str, list[float]] = {"bare_client": [], "timers": []}
    for latency in LATENCIES_MS:
        name = "hanging" if latency is None else f"{latency} ms"
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=serve, args=(latency, there), daemon=True
        )
        process.start()
        url = here.recv()
        for budget in BUDGETS_MS:
            rows = [await _load(url, budget, count) for count in PASSAGES]
            over = np.concatenate([row.pop("over") for row in rows])
            late += over.tolist()
            figures.setdefault(name, {})[f"budget {budget} ms"] = {
                "p99_over_ms": round(float(np.percentile(over, 99)), 1),
                "worst_over_ms": round(float(over.max()), 1),
                "by_passages": dict(zip(map(str, PASSAGES), rows, strict=True)),
            }
            print(name, budget, figures[name][f"budget {budget} ms"], flush=True)
        if latency == 0 and quick:
            figures["quick"] = await _quick(url)
            print("quick", figures["quick"], flush=True)
        for budget, count in product(BUDGETS_MS, PASSAGES):
            floor["timers"] += await _timers(budget)
            floor["bare_client"] += await _bare(url, budget, count)
        gc.collect()  # what the bare client leaves is not the next guard's
        here.send("stop")
        process.join(5)
    p99 = float(np.percentile(late, 99))
    result: dict[str, Any] = {
        "callers": CALLERS, "p99_over_ms": round(p99, 1), "p99_reached": p99 <= 20.0,
        "without_a_guard_p99_over_ms": {
            name: round(float(np.percentile(over, 99)), 1) for name, over in floor.items()
        },
    }  # fmt: skip
    print(result, flush=True)
    if quick:
        result["quick_reached"] = all(row["ratio"] <= 1.2 for row in figures["quick"].values())
    return result | {"servers": figures}


async def _load(url: str, budget: float, count: int) -> dict[str, Any]:
    """Measures how far over the budget each decision came with many callers at once, each with passages of its own."""
    engine = connect(url)
    guard = DistractorGuard(
        engine, budget_ms=budget, policies=[UtilityThreshold(-0.2)], min_keep=0, pause_after=10**9
    )
    await guard.engine.info()
    await guard.aprune("warm", _passages("warm", 1, 0))
    decisions = await asyncio.gather(
        *(guard.aprune(f"who founded firm {n}?", _passages(url, count, n)) for n in range(CALLERS))
    )
    over = np.array([decision.elapsed_ms - budget for decision in decisions])
    statuses: dict[str, int] = {
        status: sum(one.status == status for one in decisions) for status in {d.status for d in decisions}
    }
    await guard.aclose()
    return {"over": over, "elapsed_ms_median": round(median(d.elapsed_ms for d in decisions), 1), **statuses}


async def _bare(url: str, budget: int, count: int) -> list[float]:
    """Posts the same prompts to the same server without a guard, each caller for itself; returns each call's
    milliseconds. A caller stops waiting at the budget."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:

        async def call(n: int) -> float:
            clock = time.perf_counter()
            prompts = [f"who founded firm {n}? {passage.text}" for passage in _passages(url, count, n)] * 2
            body = {"model": "fake", "prompt": prompts, "max_tokens": 1, "logprobs": 1}
            with suppress(TimeoutError):
                async with asyncio.timeout(budget / 1e3):
                    await client.post(f"{url}/completions", json=body)
            return (time.perf_counter() - clock) * 1e3 - budget

        return await asyncio.gather(*map(call, range(CALLERS)))


async def _timers(budget: int) -> list[float]:
    """Runs as many timers as there are callers; returns how many milliseconds late each of them fired."""

    async def wait() -> float:
        clock = time.perf_counter()
        await asyncio.sleep(budget / 1e3)
        return (time.perf_counter() - clock) * 1e3 - budget

    return await asyncio.gather(*(wait() for _ in range(CALLERS)))


async def _quick(url: str) -> dict[str, Any]:
    """Measures one caller with a quick engine: the guard's time beside that of the one batched call that it makes."""
    figures, prompts = {}, load_prompts("default")
    for count in PASSAGES[1:]:
        guard = DistractorGuard(connect(url), budget_ms=5_000)
        bare = connect(url)
        guards, calls = [], []
        for n in range(ALONE):
            passages = _passages("alone", count, n)
            clock = time.perf_counter()
            await guard.aprune(f"who founded firm {n}?", passages)
            guards.append(time.perf_counter() - clock)
            asks = [
                ask(prompts, f"who founded firm {n}?", passage.text).prompt
                for ask in (abstention, relevance)
                for passage in passages
            ]
            clock = time.perf_counter()
            await bare.label_probs(asks, ("NO-RESPONSE", "A", "B"))
            calls.append(time.perf_counter() - clock)
        await guard.aclose()
        await bare.aclose()
        figures[f"{count} passages"] = {
            "guard_ms": round(median(guards) * 1e3, 2), "call_ms": round(median(calls) * 1e3, 2),
            "ratio": round(median(guards) / median(calls), 3),
        }  # fmt: skip
    return figures


def _passages(name: str, count: int, caller: int) -> Sequence[Passage]:
    words = "The firm was founded in a town by the sea and is run by those who came later. " * 4
    return [Passage(f"{name} {caller} {place} {words}", id=str(place)) for place in range(count)]
