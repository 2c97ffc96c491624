"""The lines of all parts are exactly those of the whole reader, wherever a file is cut."""

import dataclasses
import gzip
import io
import json
import os
import re
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import a_run

from ragguard.errors import StoreError
from ragguard.parts import Part, find_runs, plan_parts, read_part
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


def cut(path, content, cuts):
    """What the parts between some places of a file hold."""
    modified = os.stat(path).st_mtime_ns
    places = [0, *cuts, len(content)]
    return [
        (line.number, line.run, without_place(line))
        for start, end in pairwise(places)
        for line in read_part(
            Part(source=str(path), kind="lines", start=start, end=end, size=len(content),
                 modified_ns=modified, bytes=end - start)
        )
    ]  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(CONTENTS)
def test_at_every_cut_the_parts_hold_the_lines_of_the_file(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("cut") / "runs.jsonl"
    path.write_bytes(content)
    expected = whole(content)
    for place in range(len(content) + 1):
        assert cut(path, content, [place]) == expected
    for size in (1, 2, 7):
        assert cut(path, content, range(size, len(content), size)) == expected


def test_a_line_that_is_read_in_pieces_or_is_too_long_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(runfile, "_PIECE", 8)
    monkeypatch.setattr(runfile, "LONGEST_LINE", 60)
    content = GOOD[0] + b"\n" + b"x" * 200 + b"\n" + GOOD[1]
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    expected = whole(content)
    assert ["over 60 bytes" in str(problem) for _, _, problem in expected] == [False, True, False]
    for place in range(len(content) + 1):
        assert cut(path, content, [place]) == expected


def test_a_part_that_begins_its_file_tells_the_number_of_a_line_too(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n" + GOOD[0] + b"\n{\n[]\n")
    second = len(GOOD[0]) + 2
    size, modified = second + 5, os.stat(path).st_mtime_ns
    whole_file = Part(
        source=str(path), kind="lines", start=0, end=size, size=size, modified_ns=modified, bytes=size
    )
    told = [str(line.problem).partition(", JSON")[0] for line in read_part(whole_file) if line.problem]
    assert told[0] == f"line 3, byte {second}"
    rest = dataclasses.replace(whole_file, start=second, bytes=5)
    told = [str(line.problem).partition(", JSON")[0] for line in read_part(rest) if line.problem]
    assert told[0] == f"byte {second}"


def test_a_packed_file_is_one_part_and_tells_bytes_of_what_was_packed(tmp_path):
    content = b"\n".join([GOOD[0], b"{", b"", GOOD[1]])
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(content))
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl.gz"]), 10)
    assert [(line.number, line.run, without_place(line)) for line in read_part(part)] == whole(content)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
@pytest.mark.parametrize("group", [2, 5, 100])
def test_rows_of_parquet_at_every_size(tmp_path, kind, group):
    lines = [*GOOD, b"{", b" ", None, GOOD[0], b"[]", GOOD[1]]
    column = [line if line is None or pa.types.is_binary(kind) else line.decode() for line in lines]
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"other": range(9), "run": pa.array(column, kind)}), path, row_group_size=group)
    files = find_runs([path])
    (all_of_it,) = plan_parts(files, 10**9)
    expected = list(map(str, read_part(all_of_it)))
    assert len(expected) == 8  # the blank one is none
    assert "row 5, run: got None; allowed: a run as JSON; it is missing" in str(list(read_part(all_of_it))[4])
    for size in (1, 30, 60, 100, 150, 300):
        parts = plan_parts(files, size)
        assert [str(line) for part in parts for line in read_part(part)] == expected


def test_a_file_that_was_changed_since_the_plan_is_not_read(tmp_path):
    write_runs([a_run()], tmp_path / "runs.jsonl")
    (part,) = plan_parts(find_runs([tmp_path / "runs.jsonl"]))
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write("\n")
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
