"""Reads runs from run files, stores, traces, tables and data sets in memory.

runs_from("ragas.csv"), runs_from(frame), runs_from(dataset)      # runs
RunReading("ragas.csv").lines()                                   # runs and the problems in their place

`formats.py` is the table of formats, each with how it is recognised and read. Nothing else decides what a file is.
"""

from __future__ import annotations

from ragguard.inputs.formats import ReadOptions
from ragguard.inputs.reading import RunReading, runs_from

__all__ = ["ReadOptions", "RunReading", "runs_from"]
