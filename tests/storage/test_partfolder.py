"""A part that is scored again: wherever its process is killed, nobody reads old and new tables for one part."""

import json
import os

import pytest
from support.parts import write_part
from support.program import run_program
from support.runs import a_run

from ragguard.errors import StoreError
from ragguard.records import Score, ScoredRun
from ragguard.storage.files.partfolder import PartFolder

CHANGES = 9
"""Four files are written, the counts of before removed, and four files renamed."""


READING = """
import json, sys
from pathlib import Path
from ragguard.storage.files.partfolder import PartFolder

folder, keys = PartFolder(sys.argv[1]), json.loads(sys.argv[2])
for some in (keys[:60], keys):
    assert sum(batch.num_rows for batch in folder.read("runs", some, ["run_hash"])) == 3 * len(some)
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


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
    return {
        one for batch in folder.read("scores", folder.finished(), ["value"]) for one in batch[0].to_pylist()
    }


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
    if changes <= 4:
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


def test_reading_many_parts_holds_few_of_them(tmp_path):
    """Peak memory, in a process of its own: of 1,200 parts some 8 MiB more than of 60, and not 40 KiB for each."""
    folder = begun(tmp_path / "out")
    (runs,) = folder.paths("runs", ["a"])
    keys = [f"{number:04x}" for number in range(1200)]
    for path in folder.paths("runs", keys):
        os.link(runs, path)
    done = run_program(READING, tmp_path / "out", json.dumps(keys))
    few, many = map(int, done.stdout.split())
    assert many - few < 20 * 1024


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
        PartFolder(tmp_path / "out").begin({"made": True})
        return listed(folder, *below)

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(PartFolder, "_names", begins)
    settings = PartFolder(tmp_path / "out").settings()
    assert settings is not None
    assert settings["made"]
