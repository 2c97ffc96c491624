"""A million calls with hostile values, under several seeds: what escapes, what is lost, what the store says after.

    python benchmarks/fuzz.py [--calls 1000000] [--seed 0]

Each seed makes 100,000 calls over a store of its own. Ends with 1 where anything was found. Writes
fuzz.json.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.fuzzing import Fuzz

from benchmarks.machine import record
from benchmarks.options import parse, parser

EACH = 100_000


def main() -> int:
    """Runs the seeds, prints and writes what was found."""
    known = parser(__doc__)
    known.add_argument("--calls", type=int, default=1_000_000)
    known.add_argument("--seed", type=int, default=0)
    options = parse(known, calls=300)
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    findings: dict[str, str] = {}
    totals: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + max(1, options.calls // EACH)):
        with tempfile.TemporaryDirectory() as folder:
            fuzz = Fuzz(Path(folder), seed)
            fuzz.run(min(EACH, options.calls))
            totals.update(fuzz.finish())
        findings |= {f"seed {seed}: {what}": example for what, example in fuzz.findings.items()}
        calls.update(fuzz.calls)
        print(f"seed {seed}: {fuzz.calls.total()} calls, {len(fuzz.findings)} findings", flush=True)
    for what, example in findings.items():
        print(f"{what}\n    {example}")
    uncounted = totals["captured"] - totals["stored"] - totals["lost"]
    figures = {"calls": calls.total(), "seconds": round(time.monotonic() - began, 1), **totals}
    print(figures)
    record("fuzz", {**figures, "findings": findings})
    return 1 if findings or uncounted else 0


if __name__ == "__main__":
    sys.exit(main())
