"""The machine on which a figure was measured, and the file in which figures are written: `out/`, which git ignores, or
with RECORD=1 in the environment `results/`, which documentation and tests quote; with `--quick` always `out/quick/`."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.options import is_quick

RESULTS = Path(__file__).parent / "results"
SCRATCH = Path(__file__).parent / "out"
QUICK = SCRATCH / "quick"


def machine() -> dict[str, Any]:
    """The processor, its cores, and how busy it was: a figure without these says little."""
    return {
        "processor": _model() or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def record(name: str, figures: Mapping[str, Any]) -> Path:
    """Writes NAME.json into `results/` if RECORD=1 is set, else into `out/`; returns its path."""
    folder = QUICK if is_quick() else RESULTS if os.environ.get("RECORD") == "1" else SCRATCH
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    result = {"measured": time.strftime("%Y-%m-%d"), "machine": machine(), **figures}
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
