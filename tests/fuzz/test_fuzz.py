"""Sixty thousand calls with hostile values, the same ones each time; `benchmarks/fuzz.py` makes a million."""

from __future__ import annotations

import pytest
from support.fuzzing import Fuzz

import ragguard

CALLS, SEED = 60_000, 14


@pytest.mark.slow
def test_nothing_escapes_and_nothing_is_lost_uncounted(tmp_path):
    fuzz = Fuzz(tmp_path, SEED)
    fuzz.run(CALLS)
    found = fuzz.finish()
    assert fuzz.findings == {}
    assert found["captured"] == found["stored"] + found["lost"]
    assert (found["lost"], found["refused"]) == (0, 0)
    assert min(fuzz.calls[what] for what in ("rg.run", "run.retrieved", "rg.score", "guard.prune")) > 100


def test_the_run_finds_what_escapes(tmp_path, monkeypatch):
    """A fault that is put in is found: the run above can fail."""
    monkeypatch.setattr("ragguard.capture.handle.metadata_of", dict)
    fuzz = Fuzz(tmp_path, SEED)
    fuzz.run(3000)
    fuzz.finish()
    assert any(what.startswith("rg.run: ") for what in fuzz.findings)
    assert ragguard.current_run() is None  # no run that failed to end stays around the caller
