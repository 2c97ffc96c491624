"""Every benchmark and study runs to its end with `--quick`, and writes the fields that its record has and pages quote.

Those that need an environment of their own run in `make test-vllm` and `make test-ray`.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.environments import RAY, VLLM
from support.figures import RECORDS, quoted_pointers, shape, value_at

from studies import STUDIES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
QUICK = ROOT / "benchmarks" / "out" / "quick"
PARTS = (
    "__init__ capture_worker guard_on_time guard_peers machine options places ranx_peer scoring_live".split()
)
"""The modules of benchmarks that others use; none is run by itself."""
APART = {"ray", "engines"}
"""Those that need Ray or vLLM."""
BENCHMARKS = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {*PARTS, *APART})
OPTIONAL = (
    "langfuse", "ranx", "advised, 0.02", "advised, 0.05", "chromium", "open_s", "search_s", "50 ms", "200 ms", "500 ms",
    "20 passages", "50 passages", "/by_passages/", "/0.02/", "interval_95", "/quick/",
)  # fmt: skip
"""Words of fields that need another library, a browser, or more than a quick run asks."""
OLDER = {
    "advice": ("ways_measured",),  # only after `--actions`
    "report": ("parts_measured",),
    "scale": ("ids", "check", "scores_gib"),
    "serve": ("runs_captured",),
    "stuck_disk": ("runs lost",),
}
"""Words of fields that a record has and its benchmark no longer writes."""


def quick(*arguments):
    """Runs a program with `--quick`, on one core."""
    one_core = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RECORD": "0"}
    done = subprocess.run(
        [sys.executable, *arguments, "--quick"], cwd=ROOT, env=os.environ | one_core, capture_output=True, text=True,
        check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def check_fields(name):
    """Asserts that the quick run wrote what the record has, and every field that a page quotes of it."""
    found = json.loads((QUICK / f"{name}.json").read_text())
    record = RECORDS / f"{name}.json"
    kept = shape(json.loads(record.read_text())) if record.exists() else set()
    missing = {
        path
        for path in kept - shape(found)
        if not any(word in path for word in (*OPTIONAL, *OLDER.get(name, ()), "/machine"))
    }
    assert not missing, sorted(missing)[:10]
    for pointer in quoted_pointers(name):
        if not any(word in pointer for word in OPTIONAL):
            value_at(found, pointer)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_to_its_end(name):
    quick(f"benchmarks/{name}.py")
    if name != "house":  # prints counts and keeps nothing
        check_fields(name)


def columns_of(table):
    """Returns the names of a table's columns, without how many cases each counts."""
    return [re.sub(r" \([\d,]+\)$", "", column) for column in table["columns"]]


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_to_its_end_with_the_tables_of_its_record(name):
    quick("-m", "studies", name)
    found = json.loads((QUICK / f"study_{name}.json").read_text())["tables"]
    assert all(len(row) == len(table["columns"]) for table in found for row in table["rows"])
    kept = json.loads((ROOT / "studies" / "results" / f"{name}.json").read_text())["tables"]
    assert [(table["name"], columns_of(table)) for table in found] == [
        (table["name"], columns_of(table)) for table in kept
    ]


@pytest.mark.skipif(not RAY.ready(), reason="NO RAY HERE: run `make test-ray`")
def test_the_benchmark_of_ray_runs_to_its_end():
    quick("benchmarks/ray.py")


@pytest.mark.vllm
@pytest.mark.skipif(not VLLM.ready(), reason="NO VLLM HERE: run `make test-vllm`")
def test_the_benchmark_of_engines_runs_to_its_end():
    quick("benchmarks/engines.py")
    check_fields("engines")
