"""The lines of all parts are exactly those of the whole reader, wherever a file is cut."""

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
from ragguard.parts import find_runs, plan_parts, read_part
from ragguard.storage.files import runfile
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
    monkeypatch.setattr(runfile, "_PIECE", 8)
    monkeypatch.setattr(runfile, "LONGEST_LINE", 60)
    content = GOOD[0] + b"\n" + b"x" * 200 + b"\n" + GOOD[1]
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    expected = whole(content)
    assert ["over 60 bytes" in str(problem) for _, _, problem in expected] == [False, True, False]
    for size in range(1, len(content), 7):
        assert parts_of(path, size) == expected


def test_part_that_begins_its_file_names_the_number_of_a_line_too(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n" + GOOD[0] + b"\n{\n[]\n")
    second = len(GOOD[0]) + 2

    def problems(size):
        lines = [line for part in plan_parts(find_runs([path]), size) for line in read_part(part)]
        return [str(line.problem).partition(", JSON")[0] for line in lines if line.problem]

    assert problems(10**6)[0] == f"line 3, byte {second}"
    assert problems(second)[0] == f"byte {second}"


def test_a_packed_file_is_one_part_and_tells_bytes_of_what_was_packed(tmp_path):
    content = b"\n".join([GOOD[0], b"{", b"", GOOD[1]])
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(content))
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl.gz"]), 10)
    assert [(line.number, line.run, without_place(line)) for line in read_part(part)] == whole(content)


def test_a_file_that_was_changed_since_the_plan_is_not_read(tmp_path):
    write_runs([a_run()], tmp_path / "runs.jsonl")
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl"]))
    content = (tmp_path / "runs.jsonl").read_text()
    (tmp_path / "runs.jsonl").write_text(content + "\n")  # what is added to the file is no part of it
    assert len(list(read_part(part))) == 1
    (tmp_path / "runs.jsonl").write_text(content.replace("question", "Question", 1))
    with pytest.raises(StoreError, match="was changed since the parts were planned"):
        list(read_part(part))
    os.remove(tmp_path / "runs.jsonl")
    with pytest.raises(StoreError, match="is gone"):
        list(read_part(part))


def test_a_packed_file_that_breaks_off_is_one_sentence(tmp_path):
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress((GOOD[0] + b"\n") * 9999)[:-9])
    (part,) = plan_parts(find_runs([tmp_path]))
    with pytest.raises(StoreError, match=r"runs\.jsonl\.gz could not be read"):
        list(read_part(part))
