"""Which files hold runs, and which parts they are cut into."""

import os

import pytest
from support.runs import a_run

from ragguard.errors import InvalidInput, StoreError
from ragguard.metrics import ENGLISH, Language
from ragguard.parts import PartJob, ScoringSettings, find_runs, plan_parts
from ragguard.parts.part import LARGEST_PART, SMALLEST_PART, part_bytes
from ragguard.storage.files.runfile import write_runs
from ragguard.storage.sqlite.store import Store


@pytest.fixture
def folder(tmp_path):
    """Runs in all forms, among other files."""
    home = tmp_path / "some runs"
    (home / "below" / "deep").mkdir(parents=True)
    (home / "_old").mkdir()
    write_runs([a_run("a")], home / "a.jsonl")
    write_runs([a_run("b")], home / "below" / "b.jsonl.gz")
    write_runs([a_run("c")], home / "below" / "deep" / "c.ndjson")
    for name in ("notes.txt", "_old/x.jsonl", ".hidden.jsonl"):
        (home / name).write_text("nothing")
    return home


def test_a_folder_is_searched_for_files_with_runs(folder):
    names = [str(file.relative_to(folder)) for file in find_runs([folder])]
    assert names == ["a.jsonl", "below/b.jsonl.gz", "below/deep/c.ndjson"]
    assert [part.packed for part in plan_parts(find_runs([folder]))] == [False, True, False]


def test_file_that_is_given_twice_is_one(folder):
    assert find_runs([folder, folder / "a.jsonl"]) == find_runs([folder])


def lines_file(path, count=10):
    """A file of lines of 100 bytes, each with its own content."""
    path.write_bytes(b"".join(b"%099d\n" % at for at in range(count)))
    return path


def cut(path, size):
    return plan_parts(find_runs([path]), size)


def test_plan_cuts_files_at_the_ends_of_lines(tmp_path):
    path = lines_file(tmp_path / "runs.jsonl")
    assert [(part.start, part.end) for part in cut(path, 250)] == [
        (0, 300),
        (300, 600),
        (600, 900),
        (900, 1000),
    ]
    assert [(part.start, part.end) for part in cut(path, 300)] == [
        (0, 300),
        (300, 600),
        (600, 900),
        (900, 1000),
    ]
    assert cut(path, 250) == cut(path, 250)
    (tmp_path / "empty.jsonl").touch()
    assert cut(tmp_path / "empty.jsonl", 250) == []


def test_part_key_depends_on_content_and_settings_alone(tmp_path):
    path = lines_file(tmp_path / "runs.jsonl")
    keys = [part.key("s") for part in cut(path, 300)]
    assert len({*keys, *(part.key("t") for part in cut(path, 300))}) == 8
    path.rename(moved := tmp_path / "moved.ndjson")
    os.utime(moved, (1, 1))
    assert [part.key("s") for part in cut(moved, 300)] == keys
    with open(moved, "ab") as file:
        file.write(b"%099d\n" % 10)
    assert [part.key("s") for part in cut(moved, 300)][:3] == keys[:3]
    moved.write_bytes(moved.read_bytes().replace(b"4\n", b"x\n"))
    assert [mine == theirs for mine, theirs in zip(keys, (part.key("s") for part in cut(moved, 300)), strict=True)] == [
        True, False, True, False,
    ]  # fmt: skip


def test_a_declared_language_decides_about_scores_too():
    def record(**scoring):
        return PartJob(scoring=ScoringSettings(**scoring), out="out").record

    assert record() == record(language=ENGLISH)  # as folders of earlier versions have it
    assert record() != record(language=Language()) != record(language=Language(articles=("der",)))


def test_parts_are_sized_for_inputs_and_processes():
    assert part_bytes(10, 4) == SMALLEST_PART
    assert part_bytes(64 * 2**20, 4) == 2**20
    assert part_bytes(2**50, 4) == LARGEST_PART


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "does not exist; check the path"),
        (lambda path: path.mkdir(), "is a folder without runs; files with runs are called"),
        (lambda path: Store(path).close(), "is a store, which one process reads"),
        (os.mkfifo, "is neither a file nor a folder, and several processes cannot read it"),
    ],
    ids=["missing", "empty", "store", "pipe"],
)
def test_input_without_runs_is_one_sentence(tmp_path, make, says):
    path = tmp_path / "x"
    make(path)
    with pytest.raises(StoreError, match=says):
        plan_parts(find_runs([path]))


def test_the_standard_input_and_addresses_of_object_stores_are_refused():
    with pytest.raises(InvalidInput, match="files and folders, which several processes can read"):
        find_runs(["-"])
    with pytest.raises(InvalidInput, match="mount the object store, or copy from and to it"):
        find_runs(["s3://bucket/runs"])
    with pytest.raises(InvalidInput, match="a list of files and folders"):
        find_runs("runs.jsonl")


def test_folder_with_a_link_to_itself_is_walked_once(tmp_path):
    (tmp_path / "runs").mkdir()
    write_runs([a_run("a")], tmp_path / "runs" / "a.jsonl")
    (tmp_path / "runs" / "self").symlink_to(tmp_path / "runs", target_is_directory=True)
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "a.jsonl"]
