"""Measures what watching costs a retrieval of 20 passages of 2 KB: ragguard beside OpenInference and Langfuse.

    python benchmarks/capture.py                  all peers; Langfuse in a cached environment of its own
    python benchmarks/capture.py --no-langfuse    without it
    python benchmarks/capture.py --rounds 10      sooner, and less exact

Added is the difference of the medians to the same retrieval with nothing attached, in the same process and run.
ragguard writes to its store on disk; what the peers would send goes nowhere, which costs them nothing.

Two costs are measured: what a hook adds to the call itself, and what the whole process spends on it, with the writer's
thread, the garbage collector and SQLite ("single": one retrieval after the other with a pause; "saturated": an event
loop that never rests, and how much of its throughput is left).

Missed in the results kept here, on an idle machine whose clock goes at two speeds (a bare LangChain call takes 17 or
27 µs):
- The medians of the hooks: a part is the framework's own ("empty" is a handler that does nothing), and the
  rest is the copy of 20 passages (3 to 5 µs), the records and the queue. Called by itself at the higher speed, a pair
  of LangChain's hooks takes 14 µs, one of LlamaIndex 16.
- The processor time of retrievals that come one at a time. The writer commits every 40 ms, so that a kill loses at
  most 50 ms, which makes four retrievals a transaction; between two of them the caches of the processor are emptied.
  Measured without the process around it, the writer takes 250 µs a LangChain run there (419 before runs were
  built one by one) and 62 where 256 runs share a transaction (141); LlamaIndex 286
  and 92 (550 and 287). SQLite alone takes 173 and 17 of these for the same rows: a transaction writes nine pages,
  whatever is in it. In the whole process, the hook's own time and what it waits for Python's lock come to that.
- The throughput of a saturated event loop: it shares Python's lock with the writer. Retrievals here take no time at
  all, so that nothing but the lock is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console
from rich.table import Table
from support.cached_venv import CachedVenv, UnavailableError

from benchmarks.machine import record
from benchmarks.options import is_quick, parse, parser

ROOT = Path(__file__).parents[1]
LANGFUSE = CachedVenv(
    "langfuse",
    (
        "langfuse>=5,<6",
        "langchain-core>=1.7.2,<2",
        "openinference-instrumentation-langchain>=0.1.60",
        "httpx>=0.27,<1",
        "numpy>=1.26",
        "opentelemetry-sdk>=1.30,<2",
        "rich>=13.7",
        "typer>=0.15",
    ),
    "import langfuse.langchain, openinference.instrumentation.langchain, numpy, httpx, rich, typer",
)
TARGETS = {"sync": 15.0, "async": 25.0}
"""Microseconds added at the median."""
CPU = {"single": 300.0, "saturated": 110.0}
"""Microseconds of processor time that the whole process spends more for a retrieval, where they come one at a time and
where they come without a pause: a third of what it was before runs shared transactions."""
LESS, LONGEST, HOOK = 10.0, 5.0, 100.0
"""The targets: so many times less than each peer; so many milliseconds at most is the event loop late; and so many
microseconds at the 99th percentile is a hook's own time."""


def main() -> None:
    """Measures, prints, keeps."""
    options = parser(__doc__)
    options.add_argument("--no-langfuse", action="store_true", help="without Langfuse")
    options.add_argument("--rounds", type=int, default=30, help="how often each contender has its turn")
    arguments = parse(options, rounds=1, no_langfuse=True)
    python = Path(sys.executable)
    if not arguments.no_langfuse:
        try:
            python = LANGFUSE.install()
        except UnavailableError as error:
            print(f"without Langfuse: {error}", file=sys.stderr)
    figures = {
        "langchain": _measured(python, "langchain", arguments.rounds),
        "llama_index": _measured(Path(sys.executable), "llama_index", arguments.rounds),
    }
    for of in figures.values():
        _compare(of["contenders"])
    _show(figures)
    targets = {
        "added_us": TARGETS,
        "added_cpu_us": CPU,
        "times_less": LESS,
        "late_ms": LONGEST,
        "hook_p99_us": HOOK,
    }
    path = record("capture", {"targets": targets, **figures})
    print(path.relative_to(ROOT))


def _measured(python: Path, framework: str, rounds: int) -> dict[str, Any]:
    worker = ROOT / "benchmarks" / "capture_worker.py"
    done = subprocess.run(
        [python, worker, framework, str(rounds), *["--quick"] * is_quick()],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{framework}: {done.stderr.strip()[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _compare(by_name: dict[str, Any]) -> None:
    """Says what each adds, and how many times that is what ragguard adds."""
    bare = by_name["bare"]
    for mode in TARGETS:
        for figures in by_name.values():
            figures[mode]["added_p25"] = round(figures[mode]["p25"] - bare[mode]["p25"], 2)
            figures[mode]["added_p50"] = round(figures[mode]["p50"] - bare[mode]["p50"], 2)
            figures[mode]["added_p99"] = round(figures[mode]["p99"] - bare[mode]["p99"], 2)
        ours = by_name["ragguard"][mode]["added_p50"]
        for name, figures in by_name.items():
            if name not in ("bare", "empty", "ragguard"):
                figures[mode]["times_ragguard"] = round(figures[mode]["added_p50"] / ours, 1)


def _show(figures: dict[str, dict[str, Any]]) -> None:
    for framework, of_framework in figures.items():
        table = Table(
            title=f"{framework}: 20 passages of 2 KB, µs a retrieval; the event loop under 64 at once, ms"
        )
        for column in (
            "", "sync p50", "added", "p99", "async p50", "added", "p99", "late p99", "longest", "without GC",
        ):  # fmt: skip
            table.add_column(column, justify="right" if column else "left")
        for name, of in of_framework["contenders"].items():
            cells = [f"{of[mode][key]:,.1f}" for mode in TARGETS for key in ("p50", "added_p50", "p99")]
            late = [f"{of['loop_late_ms'][key]:.1f}" for key in ("p99", "longest", "longest_without_gc")]
            table.add_row(name, *cells, *late)
        Console(width=120).print(table)
        table = Table(title=f"{framework}: the whole process, per retrieval; a saturated event loop")
        for column in ("", "CPU µs, single", "added", "CPU µs, saturated", "added", "a second", "of bare"):
            table.add_column(column, justify="right" if column else "left")
        for name, of in of_framework["contenders"].items():
            one, many = of["single"], of["saturated"]
            cpu = [f"{figures[key]:,.0f}" for figures in (one, many) for key in ("cpu_us", "added_cpu_us")]
            table.add_row(name, *cpu, f"{many['per_second']:,}", f"{many['of_bare']:.0%}")
        Console(width=120).print(table)
        hook = of_framework["hook_us"]
        print(
            f"a hook alone, an HTTP engine that is down: p50 {hook['p50']:.1f} µs, p99 {hook['p99']:.1f} µs"
        )


if __name__ == "__main__":
    main()
