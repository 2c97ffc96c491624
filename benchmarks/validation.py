"""The studies that metrics are validated by, each run whole on nano, and how long it took.

    python benchmarks/validation.py belief sets coverage

Tables go to `results/validation-NAME.json`, as numbers, and to standard output, as text.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import record
from ragguard import connect

SEED = 0


async def main(names: list[str]) -> None:
    """Every study at its own number of questions."""
    engine = connect("nano")
    model = (await engine.info()).fingerprint
    for name in names:
        study = import_module(f"ragguard.validate.studies.{name}").study
        questions = study.__kwdefaults__["questions"]
        start = time.perf_counter()
        tables = await study(engine, questions=questions, seed=SEED)
        told = {
            "study": name, "engine": model, "questions": questions, "seed": SEED,
            "seconds": round(time.perf_counter() - start, 1), "tables": [table.as_dict() for table in tables],
        }  # fmt: skip
        record(f"validation-{name}", told)
        print("\n".join(table.markdown() for table in tables), flush=True)
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["belief", "sets", "coverage"]))
