"""A part that is scored again: wherever its process is killed, nobody reads old and new tables for one part."""

import os

import pytest
from support.parts import rows_of, write_part
from support.runs import a_run

from ragguard.errors import StoreError
from ragguard.records import Score, ScoredRun
from ragguard.storage.files.partfolder import PartFolder
from ragguard.storage.files.parttables import TABLES

CHANGES = 11
"""Five files are written, the counts of before removed, and five files renamed."""


class Killed(BaseException):
    """The end of a process."""


class FailingFilesystem:
    """A file system whose changes of files fail with an error, after some that succeed."""

    def __init__(self, real, changes, error, names=("open_output_stream", "delete_file", "move")):
        self._real, self._left, self._error, self._names = real, changes, error, names

    def __getattr__(self, name):
        found = getattr(self._real, name)
        return self._counted(found) if name in self._names else found

    def _counted(self, change):
        def counted(*arguments):
            if self._left == 0:
                raise self._error
            self._left -= 1
            return change(*arguments)

        return counted


def scored(value):
    """Three runs with a score each."""
    return [
        ScoredRun(run := a_run(f"r{at}"), [Score("utility", value, "run", run.id)], []) for at in range(3)
    ]


def values(folder):
    return set(rows_of(folder, "scores", "value"))


def begun(path):
    """A folder with one part."""
    folder = PartFolder(path)
    folder.begin({"settings": {}, "part_bytes": 1}, ["a"])
    write_part(folder, "a", scored(0.25))
    return folder


def failing(folder, *how):
    """The same folder on a file system that fails."""
    other = PartFolder(folder.place.path)
    other.place = folder.place._replace(filesystem=FailingFilesystem(folder.place.filesystem, *how))
    return other


@pytest.mark.parametrize("changes", range(CHANGES))
def test_a_part_is_replaced_whole_or_is_not_complete(tmp_path, changes):
    folder = begun(tmp_path / "out")
    with pytest.raises(Killed):
        write_part(failing(folder, changes, Killed()), "a", scored(0.75))
    if changes <= 5:
        assert (folder.finished(), values(folder)) == (["a"], {0.25})
    else:
        assert folder.finished() == []
        assert folder.complete("a") is None
    write_part(folder, "a", scored(0.75))
    folder.clean(["a"])
    assert (folder.finished(), values(folder)) == (["a"], {0.75})
    assert not list((tmp_path / "out").rglob(".*"))


def test_a_part_is_replaced(tmp_path):
    folder = begun(tmp_path / "out")
    write_part(folder, "a", scored(0.75))
    assert (folder.finished(), values(folder)) == (["a"], {0.75})
    assert folder.complete("a").scores == 3


def test_a_disk_that_fills_up_leaves_the_result_of_before(tmp_path):
    folder = begun(tmp_path / "out")
    full = failing(folder, 3, OSError(28, "No space left on device"), ("open_output_stream",))
    with pytest.raises(StoreError, match="No space left on device"):
        write_part(full, "a", scored(0.75))
    assert (folder.finished(), values(folder)) == (["a"], {0.25})
    assert not list((tmp_path / "out").rglob(".*"))


def test_files_are_on_the_disk_before_they_are_renamed(tmp_path, monkeypatch):
    folder, happened = begun(tmp_path / "out"), []
    force, move = PartFolder._force_to_disk, folder.place.filesystem.move

    def forced(self, path):
        happened.append(("forced", os.path.basename(path)))
        force(self, path)

    def moved(self, temporary, path):
        happened.append(("moved", os.path.basename(temporary)))
        move(temporary, path)

    monkeypatch.setattr(PartFolder, "_force_to_disk", forced)
    monkeypatch.setattr(FailingFilesystem, "move", moved, raising=False)
    write_part(failing(folder, 10**9, Killed(), ()), "a", scored(0.75))
    renamed = [at for at, (what, _) in enumerate(happened) if what == "moved"]
    assert len(renamed) == 5
    assert all(happened[:5][number][0] == "forced" for number in range(5))
    assert {name for _, name in happened[:5]} == {happened[at][1] for at in renamed}
    assert [name for what, name in happened[5:] if what == "forced"] == [*TABLES, "parts"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Killed()], ids=["full", "killed"])
@pytest.mark.parametrize("changes", range(4))
def test_a_folder_that_could_not_be_begun_is_begun_again(tmp_path, changes, error):
    """Settings and plan are written and renamed."""
    folder = PartFolder(tmp_path / "out")
    names = ("open_output_stream", "move", "delete_file")
    with pytest.raises((StoreError, Killed), match="free the disk" if isinstance(error, OSError) else None):
        failing(folder, changes, error, names).begin({"settings": {}, "part_bytes": 1}, ["a"])
    assert folder.settings() is None or folder.settings()["part_bytes"] == 1
    assert begun(tmp_path / "out").planned() == ["a"]


def test_a_folder_that_is_made_while_it_is_listed_has_no_complete_part_yet(tmp_path):
    folder = begun(tmp_path / "out")
    gone = FileNotFoundError(2, "Cannot list directory")
    assert failing(folder, 0, gone, ("get_file_info",)).finished() == []
    assert folder.finished() == ["a"]


def test_a_job_may_begin_while_its_folder_is_read(tmp_path, monkeypatch):
    listed = PartFolder._names

    def begins(folder, *below):
        PartFolder(tmp_path / "out").begin({"settings": {"made": True}, "part_bytes": 1})
        return listed(folder, *below)

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(PartFolder, "_names", begins)
    settings = PartFolder(tmp_path / "out").settings()
    assert settings is not None
    assert settings["settings"]["made"]
