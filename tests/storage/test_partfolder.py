"""A part that is written or scored again: wherever its process is killed, nobody reads counts of another result."""

import os
from pathlib import Path

import pytest
from support.parts import scores_in, write_part
from support.runs import a_run

from ragguard.errors import StoreError
from ragguard.records import Score, ScoredRun
from ragguard.storage.files import partfolder
from ragguard.storage.files.partfolder import PartFolder

CHANGES = 4
"""The store is forced to the disk and renamed; then the counts."""


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def changes(monkeypatch):
    """The changes of files, in order: what was done. `fail(after, error)` makes a later one fail."""

    class Changes(list):
        def fail(self, after, error):
            self.after, self.error = len(self) + after, error

    changes = Changes()
    changes.fail(10**9, None)

    def counted(what, change):
        def done(file, *more, **options):
            if len(changes) >= changes.after:
                raise changes.error
            changes.append(what)
            return change(file, *more, **options)

        return done

    monkeypatch.setattr(partfolder.os, "fsync", counted("forced", partfolder.os.fsync))
    monkeypatch.setattr(Path, "replace", counted("renamed", Path.replace))
    return changes


def scored(value):
    """Three runs with a score each."""
    runs = [a_run(f"r{at}") for at in range(3)]
    return [ScoredRun(run, [Score("utility", value, "run", run.id)], []) for run in runs]


def values(folder):
    return {score.value for score in scores_in(folder)}


@pytest.fixture
def folder(tmp_path):
    """A folder with one part."""
    folder = PartFolder(tmp_path / "out")
    folder.begin({}, 1, ["a"])
    write_part(folder, "a", scored(0.25))
    return folder


def test_part_is_on_the_disk_before_it_is_renamed_and_its_counts_come_last(folder, changes):
    write_part(folder, "a", scored(0.75))
    assert changes == ["forced", "renamed", "forced", "renamed"]


@pytest.mark.parametrize("after", range(CHANGES))
def test_part_is_replaced_whole_or_is_not_complete(folder, changes, after):
    os.remove(folder.path / "parts" / "a.json")  # the part is to be scored again
    changes.fail(after, Killed())
    with pytest.raises(Killed):
        write_part(folder, "a", scored(0.75))
    changes.fail(10**9, None)
    assert (folder.finished(), values(folder)) == ([], set())
    write_part(folder, "a", scored(0.75))
    folder.clean()
    assert (folder.finished(), values(folder)) == (["a"], {0.75})
    assert not list(folder.path.rglob(".*"))


def test_disk_that_fills_up_leaves_the_result_of_before(folder, changes):
    changes.fail(0, OSError(28, "No space left on device"))
    with pytest.raises(StoreError, match=r"No space left on device.*free the disk"):
        write_part(folder, "a", scored(0.75))
    changes.fail(10**9, None)
    assert (folder.finished(), values(folder)) == (["a"], {0.25})
    assert not list(folder.path.rglob(".*"))
