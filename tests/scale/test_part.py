"""Which files hold runs, which parts they are cut into, and their lines: exactly those of the whole reader."""

import gzip
import io
import json
import os
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.runs import a_run

from ragguard.errors import StoreError
from ragguard.scale.part import find_runs, plan_parts, read_part
from ragguard.storage.files import jsonl
from ragguard.storage.files.runfile import read_lines, write_runs

GOOD = [
    json.dumps({"question": f"q{at}\u2028\x85", "steps": []}, ensure_ascii=False).encode() for at in range(3)
]
PIECES = [
    *GOOD, b"\n", b"\r\n", b"\r", b" ", b"", b"\n\n", b"{", b"\xff", b"\xef\xbb\xbf" + GOOD[0], "\u2028".encode(),
    b'{"question": "", "steps": []}', b'{"format": "ragguard.run/9", "question": "q", "steps": []}',
]  # fmt: skip
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join)


def whole(content):
    """(byte, run, problem) of every line, by the reader of run files."""
    starts = [0]
    for line in content.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return [
        (starts[line.number - 1], line.run, without_place(line)) for line in read_lines(io.BytesIO(content))
    ]


def without_place(line):
    """What is wrong with a line, without where it is."""
    if line.problem is None:
        return None
    _, unit, number, rest = re.fullmatch(
        r"(line \d+, (?=byte))?(\w+) (\S+) (.*)", str(line.problem), re.S
    ).groups()
    assert (unit, number.rstrip(",")) in (("line", str(line.number)), ("byte", str(line.number)))
    return rest


def parts_of(path, size):
    """What the parts of a file hold."""
    return [
        (line.number, line.run, without_place(line))
        for part in plan_parts(find_runs([path]), size)
        for line in read_part(part)
    ]


@settings(max_examples=20, deadline=None)
@given(CONTENTS)
def test_parts_of_any_size_hold_the_lines_of_the_file(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("cut") / "runs.jsonl"
    path.write_bytes(content)
    assume(b"ragguard.run/9" not in content)  # such a file is refused if it begins so
    expected = whole(content)
    for size in (1, 2, 7, 40, 100, 10**6):
        assert parts_of(path, size) == expected


def test_line_that_is_read_in_pieces_or_is_too_long_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "_PIECE", 8)
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 60)
    content = GOOD[0] + b"\n" + b"x" * 200 + b"\n" + GOOD[1]
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    expected = whole(content)
    assert ["over 60 bytes" in str(problem) for _, _, problem in expected] == [False, True, False]
    for size in range(1, len(content), 7):
        assert parts_of(path, size) == expected


def test_a_packed_file_is_one_part_and_tells_bytes_of_what_was_packed(tmp_path):
    content = b"\n".join([GOOD[0], b"{", b"", GOOD[1]])
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(content))
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl.gz"]), 10)
    assert [(line.number, line.run, without_place(line)) for line in read_part(part)] == whole(content)


def test_a_file_that_was_changed_since_the_plan_is_not_read(tmp_path):
    write_runs([a_run()], tmp_path / "runs.jsonl")
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl"]), 10**6)
    content = (tmp_path / "runs.jsonl").read_text()
    (tmp_path / "runs.jsonl").write_text(content + "\n")  # what is added to the file is no part of it
    assert len(list(read_part(part))) == 1
    (tmp_path / "runs.jsonl").write_text(content.replace("question", "Question", 1))
    with pytest.raises(StoreError, match="was changed since the parts were planned"):
        list(read_part(part))
    os.remove(tmp_path / "runs.jsonl")
    with pytest.raises(StoreError, match="could not be read"):
        list(read_part(part))


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
    assert [part.packed for part in plan_parts(find_runs([folder]), 10**6)] == [False, True, False]


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


def test_folder_with_a_link_to_itself_is_walked_once(tmp_path):
    (tmp_path / "runs").mkdir()
    write_runs([a_run("a")], tmp_path / "runs" / "a.jsonl")
    (tmp_path / "runs" / "self").symlink_to(tmp_path / "runs", target_is_directory=True)
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "a.jsonl"]
