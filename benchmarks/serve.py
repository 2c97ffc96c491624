"""How many traces `ragguard serve` takes durably, how late it answers, and what memory that takes.

    python benchmarks/serve.py [TRACES]

A process of its own takes traces of two hops with 20 passages of 2,000 characters each, OTLP in protobuf and gzip,
five traces a request, from four threads. Beside it, in the same run: the same spans put into the spool by hand, which
is what the disk and SQLite alone take. With `--scored` runs are scored meanwhile with `utility`, by a server in a
process of its own that answers at once.

Target: 500 traces a second on two cores, and flat memory. With hardly anything beside it (load 1.1 to 1.4): 569 and 635
taken, 324 until they are runs. Processor time, which other work changes less: 1.4 to 1.8 ms a trace until it is taken,
2.7 to 3.8 until it is a run. Memory over 30,000 traces: 101 MiB after sending, 126 MiB at the end. Over 100,000, on 16
cores: 692 a second taken, 105 to 109 MiB from the first tenth to the last, 194 MiB once all are runs.
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
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import Process, Queue
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from benchmarks.slow_server import serve
from ragguard.traces.otlp import spans_of_protobuf
from ragguard.traces.spool import Spool

TARGET = 500
"""Traces a second."""
AT_ONCE, THREADS, PASSAGES, CHARACTERS = 5, 4, 20, 2_000
HEADERS = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
WAITING = re.compile(r'^ragguard_(\w+(?:{what="\w+"})?) (\d+)', re.MULTILINE)
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
    return request.SerializeToString()


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
            spool.add(spans_of_protobuf(gzip.decompress(raw)))
        took = time.perf_counter() - began
        spool.close()
    return len(bodies) * AT_ONCE / took


def served(bodies: list[bytes], scorers: str, engine: str = "nano") -> dict[str, float]:
    """Returns the figures of a service that gets these requests."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "serve",
            "-e",
            engine,
            "-s",
            f"{folder}/r.db",
            "--port",
            "0",
            "--settle",
            "0",
            "--scorers",
            scorers,
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "ragguard", *command], stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            url = re.search(r"http://\S+(?=;)", process.stderr.readline())[0]  # type: ignore[index]
            before, used = memory(process.pid), processor(process.pid)
            with httpx.Client(
                base_url=url, timeout=120, limits=httpx.Limits(max_connections=THREADS)
            ) as client:

                def send(raw: bytes) -> float:
                    began = time.perf_counter()
                    client.post("/v1/traces", content=raw, headers=HEADERS).raise_for_status()
                    return time.perf_counter() - began

                began, waits, tenths = time.perf_counter(), [], []
                with ThreadPoolExecutor(THREADS) as threads:
                    for at in range(10):
                        part = bodies[len(bodies) * at // 10 : len(bodies) * (at + 1) // 10]
                        waits += threads.map(send, part)
                        tenths.append(memory(process.pid))
                took = time.perf_counter() - began
                half, using = memory(process.pid), processor(process.pid)
                counts = client.get("/metrics").text
                all_traces = f'what="traces"}} {len(bodies) * AT_ONCE}'
                later = [half]
                while scorers == "none" and all_traces not in client.get("/metrics").text:
                    time.sleep(0.2)
                    later.append(memory(process.pid))
                stored = time.perf_counter() - began
            traces = len(bodies) * AT_ONCE
            return {
                "traces a second": traces / took,
                "traces a second until they are runs": traces / stored if scorers == "none" else math.nan,
                "processor ms a trace, taken": (using - used) / traces * 1000,
                "processor ms a trace, until they are runs": (processor(process.pid) - used) / traces * 1000,
                "answer, median ms": statistics.median(waits) * 1000,
                "answer, p99 ms": sorted(waits)[int(len(waits) * 0.99)] * 1000,
                "memory before, MiB": before, "memory after sending, MiB": half,
                "memory at the end, MiB": memory(process.pid),
            } | {f"memory after {at + 1} tenths sent, MiB": value for at, value in enumerate(tenths)} | {
                f"memory after {at} tenths made runs, MiB": later[at * (len(later) - 1) // 10] for at in range(11)
            } | {
                f"after sending, {name}": float(value) for name, value in WAITING.findall(counts)
            }  # fmt: skip
        finally:
            process.kill()
            process.communicate()


def main() -> None:
    numbers = [int(one) for one in sys.argv[1:] if one.isdigit()]
    traces = numbers[0] if numbers else 2_000
    with ProcessPoolExecutor() as processes:
        bodies = list(processes.map(packed, range(0, traces, AT_ONCE), chunksize=20))
    figures: dict[str, object] = {"traces": traces, "spool by hand, traces a second": by_hand(bodies)}
    if "--scored" in sys.argv:
        said, end = Queue(), Queue()
        model = Process(target=serve, args=("vllm", 1e9, said, end), daemon=True)
        model.start()
        figures |= served(bodies, "utility", said.get(timeout=60))
        end.put(None)
    else:
        figures |= served(bodies, "none")
    for name, value in figures.items():
        print(f"{name:40} {value:10,.1f}" if isinstance(value, float) else f"{name:40} {value:10}")
    record("serve", figures)


if __name__ == "__main__":
    main()
