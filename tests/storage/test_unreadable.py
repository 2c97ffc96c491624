"""Rows that another program has changed so that they cannot be read."""

from __future__ import annotations

import sqlite3

import pytest
from support.runs import a_run
from support.stored import captured
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.errors import StoreError
from ragguard.storage.sqlite.store import Store


@pytest.fixture(params=["body = 'no JSON'", "body = '[1]'"])
def path(tmp_path, request):
    """A store of three runs, of which r1 cannot be read."""
    store = Store(tmp_path / "s.db")
    captured(store, *(a_run(f"r{number}") for number in range(3)))
    store.close()
    connection = sqlite3.connect(tmp_path / "s.db")
    with connection:
        connection.execute(f"UPDATE runs SET {request.param} WHERE id = 'r1'")
    connection.close()
    return tmp_path / "s.db"


@pytest.mark.parametrize("read", [Store.runs, Store.scored_runs, lambda store: [store.run("r1")]])
def test_reader_names_the_run_and_the_way_out(path, read):
    store = Store(path, read_only=True)
    with pytest.raises(
        StoreError, match=r"the run 'r1' in .* cannot be read: .*; delete it with rg\.delete\('r1'\)"
    ):
        list(read(store))
    store.close()
    done = CliRunner().invoke(app, ["report", str(path)])
    assert done.exit_code == 2
    assert "'r1'" in done.output


def test_due_run_that_cannot_be_read_holds_nobody_up_and_fails_for_good(path):
    store = Store(path)
    store.housekeep()
    assert [claim.run.id for claim in store.claim(5)[0]] == ["r0", "r2"]
    assert store.left().pending == 2
    [failure] = store.failures("r1")
    assert "the run cannot be read from the store" in failure.message
    assert not failure.will_retry
    assert store.delete("r1")
    assert [run.id for run in store.runs()] == ["r0", "r2"]
    store.close()
