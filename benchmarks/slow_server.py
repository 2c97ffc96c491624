"""Scoring with servers of stated speed, from 20 to 100,000 tokens a second: what is scored, and how long that takes
beside the server's pure working time, which is the work of a server that is never asked twice and never idle.

A server writes so many tokens a second in all, shared by the requests in flight, and reads ten times as fast. It stops
working for a client that has gone away, as vLLM does. Each answer that is drawn has 20 tokens. Beside the fastest
server the same is scored with everything in flight at once. `--speed N`: this speed alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Request, read_request

from benchmarks.machine import record
from benchmarks.options import parse, parser
from ragguard import Passage, RagGuard, RetrievalStep, Run
from ragguard.engines.engine import Layer
from ragguard.engines.http.server import ServerEngine
from ragguard.engines.layers import Cache, Coalesce, Priority, Retry
from ragguard.engines.layers.priority import START
from ragguard.scorers.belief import Belief

SPEEDS = {20: 3, 100: 10, 1_000: 30, 100_000: 60}
"""The tokens that a server writes a second, each with the runs to score."""
NEVER_LATE, EVERYTHING = 1e12, 10**9
ANSWER_TOKENS = 20
READ_FASTER = 10
Face = Literal["vllm", "openai"]
FACES: tuple[Face, ...] = ("vllm", "openai")
REQUEST_S = 120.0
TEXT = "it makes boats of oak and tar. " * 12


@dataclass
class Shared:
    """A processor of a given speed that works for all requests in flight alike."""

    speed: float
    done: float = 0.0
    """The tokens that were written for each request that was there all the time."""
    waiting: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self) -> None:
        now = time.monotonic()
        if self.waiting:
            self.done += (now - self.since) * self.speed / len(self.waiting)
        self.since = now

    async def work(self, tokens: float) -> None:
        self.advance()
        end = self.done + tokens
        self.waiting.append(end)
        self.changed.set()
        try:
            while self.done < end - 1e-9:
                self.changed.clear()
                left = (end - self.done) * len(self.waiting) / self.speed
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), left)
                self.advance()
        finally:
            self.advance()
            self.waiting.remove(end)
            self.changed.set()


class SlowServer(MisbehavingServer):
    """A fake model behind a processor of a given speed."""

    def __init__(self, face: Face, speed: float) -> None:
        super().__init__(FakeModel(face=face, context=100_000).handle)
        self.processor = Shared(speed)
        self.asked = 0.0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader):
                tokens = cost(request)
                self.asked += tokens
                working = asyncio.ensure_future(self.processor.work(tokens))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    working.cancel()
                    break
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
                await self._answer(writer, self._reply(request))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def cost(request: Request) -> float:
    """The work of a request, in tokens to write."""
    if not request.path.endswith("completions"):
        return 0.0
    body = request.json
    prompts = len(body["prompt"]) if "prompt" in body else 1
    written: int = min(body.get("max_tokens") or 1, ANSWER_TOKENS) * body.get("n", 1) * prompts
    return written + len(request.body) / 4 / READ_FASTER


def serve(face: Face, speed: float, said: Queue[Any], end: Queue[Any]) -> None:
    async def main() -> None:
        slow = SlowServer(face, speed)
        async with slow as server:
            said.put(server.url)
            await asyncio.to_thread(end.get)
            said.put(slow.asked)

    asyncio.run(main())


def runs(number: int) -> list[Run]:
    made = []
    for at in range(number):
        steps = [
            RetrievalStep(
                f"{at}-{hop}", f"{at}", hop, query=f"Who runs firm {at}?",
                passages=[Passage(f"Firm {at}, part {hop}, passage {n}: {TEXT}") for n in range(3)],
            )
            for hop in range(3)
        ]  # fmt: skip
        made.append(
            Run(
                id=f"{at}",
                question=f"Who runs firm {at}?",
                references=["Ada Berg"],
                answer="Ada Berg",
                steps=steps,
            )
        )
    return made


def stack(url: str, window: bool) -> Layer:
    bare = ServerEngine(url, timeout_s=REQUEST_S if window else 3600.0)
    bounded = Priority(Retry(bare), REQUEST_S) if window else Priority(Retry(bare), NEVER_LATE, EVERYTHING)
    return Cache(Coalesce(bounded))


def measure(face: Face, speed: int, number: int, window: bool = True) -> dict[str, Any]:
    """Scores runs with a server of this speed, in a process of its own."""
    context = get_context("spawn")
    said, end = context.Queue(), context.Queue()
    server = context.Process(target=serve, args=(face, speed, said, end), daemon=True)
    server.start()
    url, given = said.get(timeout=600), runs(number)
    scores, failures = 0, list[str]()

    async def score() -> None:
        nonlocal scores
        engine = stack(url, window)
        with RagGuard(engine, scorers=[Belief(by="samples"), "utility"], store=None) as rg:
            async for scored in rg.score_runs(given):
                scores += len(scored.scores)
                failures.extend(one.message for one in scored.failures)

    began = time.monotonic()
    asyncio.run(score())
    seconds = time.monotonic() - began
    end.put(None)
    work = said.get(timeout=600)
    server.join(60)
    return {
        "seconds": seconds,
        "asked": work,
        "scores": scores,
        "failures": len(failures),
        "why": failures[:1],
    }


def compared(face: Face, speed: int, number: int) -> dict[str, Any]:
    """The figures of one server beside those of an endlessly fast one."""
    pure = measure(face, 10**9, number, window=False)
    found = measure(face, speed, number)
    row = {
        "server": face, "tokens a second": speed, "runs": number, "scores": found["scores"],
        "scores of an endlessly fast server": pure["scores"], "failures": found["failures"],
        "pure working time, s": round(pure["asked"] / speed, 2), "took, s": round(found["seconds"], 2),
        "work asked, of the least": round(found["asked"] / pure["asked"], 3),
        "time, of the pure": round(found["seconds"] * speed / pure["asked"], 3), "why": found["why"],
    }  # fmt: skip
    if speed >= 100_000:
        row["time, of all at once"] = round(
            found["seconds"] / measure(face, speed, number, window=False)["seconds"], 3
        )
    print(row, flush=True)
    return row


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--speed", type=int)
    options.add_argument("--runs", type=int, help="runs for each server, in place of its own number")
    given = parse(options, speed=100_000, runs=2)
    speeds = {s: given.runs or n for s, n in SPEEDS.items() if given.speed in (None, s)}
    slow = [(face, s, n) for s, n in speeds.items() for face in FACES if s < 100_000]
    with ProcessPoolExecutor(
        max(1, len(slow)), mp_context=get_context("spawn")
    ) as pool:  # they wait nearly all the time
        rows = list(pool.map(compared, *zip(*slow, strict=True))) if slow else []
    rows += [compared(face, s, n) for s, n in speeds.items() for face in FACES if s >= 100_000]
    print(record("slow_server", {"start of the window": START, "servers": rows}))


if __name__ == "__main__":
    main()
