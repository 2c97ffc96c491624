"""How many traces `ragguard serve` takes durably, how late it answers, and what memory that takes.

    python benchmarks/serve.py [TRACES] [--scored] [--rate N] [--most-runs N] [--most-traces N]

A process of its own takes traces of two hops with 20 passages of 2,000 characters each, OTLP in protobuf and gzip,
five traces a request, over four connections. Bodies are made before, and the sender writes bytes to sockets and reads
the status, so that it costs next to nothing; what it and the model's server took of the processor is said. Beside it,
in the same run: the same spans put into the spool by hand, which is what the disk and SQLite alone take.

With `--scored` runs are scored meanwhile with `utility`, by a server in a process of its own that answers at once; with
`--rate` so many traces are sent in a second, and not as many as are taken, which leaves more for scoring. With
`--most-runs` and `--most-traces` fewer runs and traces may wait than usually, so that these bounds are reached: what is
beyond them is refused and counted, and memory stays flat.

Target: 500 traces a second on two cores, also while runs are scored, and flat memory. Processor time, which other work
changes less than the rate: 0.7 ms a trace until it is taken, 1.0 while runs are scored, 2.1 until it is a run.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import Process, Queue
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.options import parse, parser
from benchmarks.slow_server import serve
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import packed_protobuf

TARGET = 500
"""Traces a second."""
AT_ONCE, THREADS, PASSAGES, CHARACTERS = 5, 4, 20, 2_000
WAITING = re.compile(r'^ragguard_(\w+(?:{what="[^"]+"})?) (\d+)', re.MULTILINE)
WORDS = "the mill changed hands again and nobody in the town could say who had paid for the wheel".split()


def body(first: int) -> bytes:
    """Returns the body of a request with some traces, each of a chain with two retrievals."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(first, first + AT_ONCE):
        trace = (number + 1).to_bytes(16, "big")
        for place in range(3):
            span = spans.add(
                trace_id=trace, span_id=(place + 1).to_bytes(8, "big"), name="ask" if place == 0 else "search",
                parent_span_id=b"" if place == 0 else (1).to_bytes(8, "big"),
                start_time_unix_nano=place * 10 + 1, end_time_unix_nano=99 if place == 0 else place * 10 + 5,
            )  # fmt: skip
            values = {
                "openinference.span.kind": "CHAIN",
                "input.value": f"question {number}",
                "output.value": "Ada",
            }
            if place:
                values = {"openinference.span.kind": "RETRIEVER", "input.value": f"query {number} {place}"}
                for rank in range(PASSAGES):
                    text = " ".join(WORDS[(number * 7 + rank * 3 + word) % len(WORDS)] for word in range(460))
                    values[f"retrieval.documents.{rank}.document.id"] = f"{number}-{place}-{rank}"
                    values[f"retrieval.documents.{rank}.document.content"] = f"{number} {rank} {text}"[
                        :CHARACTERS
                    ]
            for key, value in values.items():
                span.attributes.add(key=key).value.string_value = value
    packed: bytes = request.SerializeToString()
    return packed


def packed(first: int) -> bytes:
    """Returns the body of a request as it is sent."""
    return gzip.compress(body(first), 1)


def memory(process: int) -> float:
    """Returns the resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def processor(process: int) -> float:
    """Returns the processor seconds that a process has used."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def by_hand(bodies: list[bytes]) -> float:
    """Returns how many traces a second go into a spool without a service around it, over 10,000 traces at most."""
    bodies = bodies[: 10_000 // AT_ONCE]
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder, "spool"))
        began = time.perf_counter()
        for raw in bodies:
            spool.add(packed_protobuf(gzip.decompress(raw), []))
        took = time.perf_counter() - began
        spool.close()
    return len(bodies) * AT_ONCE / took


@contextmanager
def service(folder: str, scorers: str, engine: str, bounds: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Runs the service in a process of its own; yields the process's id and its address. `bounds` are constants of the
    service that are set in it, by module and name."""
    options = f"serve -e {engine} -s {folder}/r.db --port 0 --settle 0 --scorers {scorers}".split()
    settings = "".join(
        f"import {name.rpartition('.')[0]}\n{name} = {value}\n" for name, value in bounds.items()
    )
    command = f"{settings}import sys\nsys.argv[1:] = {options}\nfrom ragguard.cli import main\nmain()"
    process = subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        yield process.pid, re.search(r"http://\S+(?=;)", said)[0]  # type: ignore[index]
    finally:
        process.kill()
        process.communicate()


class Sender:
    """Connections that send bodies one after the other and look at nothing but the status, so that the sender costs
    next to nothing beside the service."""

    def __init__(self, url: str, bodies: list[bytes], rate: float) -> None:
        """Takes how many traces are sent in a second; as many as are taken for infinity."""
        self._host, _, port = url.removeprefix("http://").partition(":")
        began = time.perf_counter()
        due = (began + number * AT_ONCE / rate for number in range(len(bodies)))
        self._port, self._bodies, self.waits = (
            int(port),
            iter([*zip(due, bodies, strict=True)]),
            list[float](),
        )

    def run(self) -> None:
        """Sends the bodies over several connections, each from a thread of its own."""
        threads = [Thread(target=self._send) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self) -> None:
        head = f"POST /v1/traces HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
        head += "content-type: application/x-protobuf\r\ncontent-encoding: gzip\r\ncontent-length: "
        with create_connection((self._host, self._port)) as connection:
            for due, body in self._bodies:
                time.sleep(max(0.0, due - time.perf_counter()))
                began = time.perf_counter()
                connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
                reply = connection.recv(65_536)
                while not (size := re.search(rb"(?i)content-length: (\d+)", reply)) or len(reply) < (
                    reply.index(b"\r\n\r\n") + 4 + int(size[1])
                ):
                    reply += connection.recv(65_536)
                assert reply.startswith(b"HTTP/1.1 200"), reply
                self.waits.append(time.perf_counter() - began)


def served(
    bodies: list[bytes],
    scorers: str,
    engine: str = "nano",
    model: int | None = None,
    bounds: dict[str, int] | None = None,
    rate: float = math.inf,
) -> dict[str, float]:
    """Returns the figures of a service that gets these requests, so many traces a second; `model` is the process that
    answers its questions."""
    traces = len(bodies) * AT_ONCE
    with (
        tempfile.TemporaryDirectory() as folder,
        service(folder, scorers, engine, bounds or {}) as (process, url),
    ):
        before, used, own = memory(process), processor(process), processor(os.getpid())
        asked = processor(model) if model else 0.0
        began, tenths, waits = time.perf_counter(), [], []
        for at in range(10):
            sender = Sender(url, bodies[len(bodies) * at // 10 : len(bodies) * (at + 1) // 10], rate)
            sender.run()
            waits += sender.waits
            tenths.append(memory(process))
        took, using = time.perf_counter() - began, processor(process)
        own, asked = processor(os.getpid()) - own, (processor(model) if model else 0.0) - asked
        half = memory(process)
        counts = httpx.get(f"{url}/metrics", timeout=60).text
        later = [half]
        while (
            scorers == "none"
            and not bounds
            and f'what="traces"}} {float(traces)}' not in httpx.get(f"{url}/metrics").text
        ):
            time.sleep(0.2)
            later.append(memory(process))
        stored = time.perf_counter() - began
        figures = {
            "traces a second": traces / took,
            "processor ms a trace, sender": own / traces * 1000,
            "processor ms a trace, model server": asked / traces * 1000,
            "processor ms a trace, taken": (using - used) / traces * 1000,
            "cores used, service": (using - used) / took,
            "cores used, sender": own / took,
            "cores used, model server": asked / took,
            "answer, median ms": statistics.median(waits) * 1000,
            "answer, p99 ms": sorted(waits)[int(len(waits) * 0.99)] * 1000,
            "memory before, MiB": before, "memory after sending, MiB": half,
            "memory at the end, MiB": memory(process),
        }  # fmt: skip
        if len(later) > 1:
            figures |= {
                "traces a second until they are runs": traces / stored,
                "processor ms a trace, until they are runs": (processor(process) - used) / traces * 1000,
            } | {
                f"memory after {at} tenths made runs, MiB": later[at * (len(later) - 1) // 10]
                for at in range(11)
            }
        figures |= {f"memory after {at + 1} tenths sent, MiB": value for at, value in enumerate(tenths)}
        return figures | {f"after sending, {name}": float(value) for name, value in WAITING.findall(counts)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("traces", type=int, nargs="?", default=2_000)
    options.add_argument(
        "--scored", action="store_true", help="score meanwhile, by a server that answers at once"
    )
    options.add_argument(
        "--most-runs", type=int, help="the most runs that may wait to be scored, in place of 10,000"
    )
    options.add_argument("--most-traces", type=int, help="the most traces that may wait, in place of 100,000")
    options.add_argument(
        "--rate", type=float, default=math.inf,
        help="traces that are sent in a second; default: as many as are taken",
    )  # fmt: skip
    given = parse(options, traces=60)
    named = {
        "ragguard.serve.ingest.MOST_PENDING": given.most_runs,
        "ragguard.traces.spool.MOST_TRACES": given.most_traces,
    }
    bounds = {name: value for name, value in named.items() if value is not None}
    with ProcessPoolExecutor() as processes:
        bodies = list(processes.map(packed, range(0, given.traces, AT_ONCE), chunksize=20))
    figures: dict[str, object] = {
        "traces": given.traces,
        "traces sent in a second": str(given.rate),
        "spool by hand, traces a second": by_hand(bodies),
    } | bounds
    if given.scored:
        said, end = Queue[Any](), Queue[Any]()
        model = Process(target=serve, args=("vllm", 1e9, said, end), daemon=True)
        model.start()
        figures |= served(bodies, "utility", said.get(timeout=60), model.pid, bounds, given.rate)
        end.put(None)
    else:
        figures |= served(bodies, "none", bounds=bounds, rate=given.rate)
    for name, value in figures.items():
        print(f"{name:40} {value:10,.2f}" if isinstance(value, float) else f"{name:40} {value:10}")
    paced = f"_{given.rate:.0f}" * math.isfinite(given.rate)
    record("serve" + "_scored" * given.scored + "_bounded" * bool(bounds) + paced, figures)


if __name__ == "__main__":
    main()
