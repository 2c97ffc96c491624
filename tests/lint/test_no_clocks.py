"""No test measures time: what a busy machine does with it is not the program's fault.

A test counts instead (requests, events, passes, calls), or makes what it must not wait for last for ever and ends at
all. Bounds on time live in `benchmarks/`. One place waits for what another thread, task or process does, and gives up
after some time: `support/polling.py`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
POLLING = TESTS / "support" / "polling.py"
MONOTONIC = {"monotonic", "monotonic_ns"}
"""Clocks that deadlines are made of; an assertion on one bounds a time."""
CLOCKS = MONOTONIC | {"time", "time_ns"}
"""Clocks that have other uses than to measure."""
STOPWATCHES = {
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
}
"""Clocks that have no other use than to measure."""
DURATIONS = {"elapsed_ms", "elapsed", "seconds", "duration"}
"""Names of durations that the package reports. A test may assert that one is more than 0, and not how long it is."""


def violations(source: str) -> list[int]:
    """Returns the numbers of the lines that measure time."""
    nodes = list(ast.walk(ast.parse(source)))
    readings = {
        named(target)
        for node in nodes
        if isinstance(node, ast.Assign) and is_clock(node.value)
        for target in node.targets
    }
    return sorted({node.lineno for node in nodes if measures(node, readings)})


def measures(node: ast.AST, readings: set[str]) -> bool:
    """Returns True where a node uses a stopwatch, subtracts two readings of a clock, or asserts on a clock or on a
    bound of a duration."""
    if isinstance(node, ast.Attribute | ast.Name):
        return named(node) in STOPWATCHES
    if isinstance(node, ast.Constant):  # the code of another program
        return isinstance(node.value, str) and any(f"{name}(" in node.value for name in STOPWATCHES)
    if isinstance(node, ast.BinOp):
        later = is_clock(node.left) or named(node.left) in readings
        return isinstance(node.op, ast.Sub) and later and not isinstance(node.right, ast.Constant)
    return isinstance(node, ast.Assert) and any(
        (isinstance(one, ast.Compare) and bounds(one))
        or (isinstance(one, ast.Call) and named(one.func) in MONOTONIC)
        for one in ast.walk(node.test)
    )


def named(node: ast.AST) -> str:
    """Returns the last name of an expression; an empty string where it has none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_clock(node: ast.AST) -> bool:
    """Returns True for an expression that reads a clock."""
    return isinstance(node, ast.Call) and named(node.func) in CLOCKS


def bounds(comparison: ast.Compare) -> bool:
    """Returns True where a duration is compared with anything but zero."""
    sides = [comparison.left, *comparison.comparators]
    return (
        any(isinstance(kind, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for kind in comparison.ops)
        and any(named(side) in DURATIONS for side in sides)
        and not any(isinstance(side, ast.Constant) and side.value == 0 for side in sides)
    )


FILES = [path for path in sorted(TESTS.rglob("*.py")) if path not in (Path(__file__), POLLING)]


def test_no_test_measures_time():
    found = [
        f"{path.relative_to(TESTS)}:{line}" for path in FILES for line in violations(path.read_text("utf-8"))
    ]
    assert found == [], (
        "count, or make what must not be waited for last for ever; bounds on time: benchmarks/"
    )


@pytest.mark.parametrize(
    "code",
    [
        "began = time.monotonic()\nassert time.monotonic() - began < 5",
        "began = time.time()\nact()\ntook = time.time() - began",
        "clock = perf_counter()",
        "run('import time; a = time.perf_counter()')",
        "assert decision.elapsed_ms < 50",
        "assert 0.1 < report.seconds",
        "deadline = time.monotonic() + 5\nwhile not done():\n    assert time.monotonic() < deadline",
    ],
)
def test_code_that_measures_time_is_reported(code):
    assert violations(code)


@pytest.mark.parametrize(
    "code",
    [
        "eventually(done, 5)",
        "ask(deadline=time.monotonic() - 1)",
        "assert decision.elapsed_ms > 0",
        "assert found['elapsed_ms'] == 2.0",
    ],
)
def test_code_that_waits_or_reads_the_date_is_not_reported(code):
    assert violations(code) == []
