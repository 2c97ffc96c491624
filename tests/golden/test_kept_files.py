"""Files that past versions wrote are read by this one, with everything in them; a store of a schema before 4 is
refused.

The files in `kept` are never written anew. A version that writes another format adds its own beside them.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.fixed_runs import fixed_runs

from ragguard.engines.prompts import load_prompts
from ragguard.errors import SchemaMismatch
from ragguard.guard.calibration import Calibration
from ragguard.storage.files.runfile import read_runs
from ragguard.storage.source import read_scored
from ragguard.storage.sqlite import layout
from ragguard.storage.sqlite.store import Store

KEPT = Path(__file__).parent / "kept"


def kept(pattern):
    """The files of one kind, one for each past version."""
    found = sorted(KEPT.glob(pattern))
    assert found
    return pytest.mark.parametrize("file", found, ids=lambda path: path.name)


@kept("store-*.sql")
def test_a_kept_store_of_this_schema_and_the_one_before_is_read_and_an_older_one_refused(file, tmp_path):
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(file.read_text())
    if int(file.stem.removeprefix("store-")) < layout.VERSION - 1:
        with pytest.raises(SchemaMismatch, match="another ragguard"):
            Store(path)
        return
    store = Store(path)
    expected = fixed_runs()
    assert list(store.runs()) == [scored.run for scored in expected]
    for scored in expected:
        assert store.scores(scored.run.id) == scored.scores
        assert store.failures(scored.run.id) == scored.failures
    store.housekeep()
    assert store.run_count() == len(expected)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (layout.VERSION,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [scored.scores for scored in read_scored(path)] == [scored.scores for scored in expected]


def test_the_store_of_this_version_is_kept():
    assert (KEPT / f"store-{layout.VERSION}.sql").exists()


@kept("runs-*.jsonl")
def test_a_kept_run_file_is_read(file):
    assert list(read_runs(file)) == [scored.run for scored in fixed_runs()]


@kept("scores-*.jsonl")
def test_a_kept_score_file_is_read(file):
    expected = [scored for scored in fixed_runs() if scored.scores or scored.failures]
    found = list(read_scored(file))
    assert [scored.run.id for scored in found] == [scored.run.id for scored in expected]
    assert [scored.scores for scored in found] == [scored.scores for scored in expected]
    assert [scored.failures for scored in found] == [scored.failures for scored in expected]


@kept("calibration-*.json")
def test_a_kept_calibration_is_read(file, tmp_path):
    calibration = Calibration.load(file)
    assert (calibration.threshold, calibration.min_keep, calibration.passages_kept) == (0.25, 2, 3.5)
    calibration.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()).items() >= json.loads(file.read_text()).items()


@kept("prompts-*.toml")
def test_a_kept_prompt_file_is_read(file):
    prompts = load_prompts(file)
    assert prompts.identity == "house/3"
    assert prompts.render("abstention", ["Oslo is a city."], query="Which?").messages[-1].content == (
        "Which? <p>Oslo is a city.</p> NO if nothing says it."
    )
