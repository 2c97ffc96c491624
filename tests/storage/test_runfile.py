"""Run files and score files: written, read, and lines that cannot be read."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import a_run, scores_of

from ragguard.errors import InvalidInput, RunFormatError, StoreError
from ragguard.records import (
    Failure,
    Passage,
    Score,
    ScoredRun,
    Usage,
)
from ragguard.storage.files import jsonl
from ragguard.storage.files.jsonl import opened
from ragguard.storage.files.runfile import (
    data_of_run,
    line_of,
    read_lines,
    read_runs,
    write_runs,
    write_scores,
)
from ragguard.storage.source import read_scored
from ragguard.telemetry.sink import JsonlSink
from ragguard.text.plain import without_surrogates

LEAST = {"question": "who?", "steps": [{"passages": ["a text"]}]}


def line(**changes):
    return json.dumps({**LEAST, **changes})


def parse_line(text, number=1):
    raw = text if isinstance(text, bytes) else text.encode()
    return line_of(raw, len(raw), number)


def problem(text):
    found = parse_line(text, 7)
    assert found.run is None
    return str(found.problem)


def test_the_least_that_a_line_needs():
    run = parse_line(json.dumps(LEAST)).run
    assert run.question == "who?"
    assert run.steps[0].query == "who?"
    assert run.steps[0].passages == run.steps[0].candidates == [Passage("a text")]
    assert run.status == "ok"
    assert run.references is None
    assert run.answer is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 7, JSON"),
        ("[]", r"line 7, line: got \[\]; allowed: an object"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff", "line 7, text: .*UTF-8"),
        ("[" * 100_000, "line 7, JSON: .*less deeply nested"),
        (line(question=""), "line 7, question: got ''; allowed: a question that is not empty"),
        ('{"steps": []}', "line 7, question: got None; allowed: needed; it is missing"),
        ('{"question": "who?"}', "line 7, steps: .*missing"),
        (line(steps=[{}]), r"line 7, steps\[0\]\.passages: .*missing"),
        (line(steps=[{"passages": [{"id": "p"}]}]), r"steps\[0\]\.passages\[0\]\.text: .*missing"),
        (line(steps=[{"passages": [5]}]), r"steps\[0\]\.passages\[0\]: got 5; allowed: a text or an object"),
        (line(format="ragguard.run/2"), "line 7, format: got 'ragguard.run/2'; allowed: 'ragguard.run/1'"),
        (line(refrences=["x"]), "refrences.*did you mean 'references'"),
        (line(mine=1), "your own data go into `metadata`"),
        (line(steps=[{"passages": [{"text": "x", "grade": 6}]}]), r"grade: got 6; allowed: a whole number from 1 to 5"),
        ('{"question": "q", "steps": [{"passages": [{"text": "x", "score": NaN}]}]}', "NaN is no number of JSON's"),
        (line(steps=[{"passages": [], "id": "a"}, {"passages": [], "id": "a"}]), "steps with different ids"),
    ],
)  # fmt: skip
def test_wrong_line_of_a_run_file_is_named(text, says):
    import re

    assert re.search(says, problem(text))


def test_a_line_that_is_too_long_is_skipped_without_being_held(monkeypatch):
    monkeypatch.setattr(jsonl, "LONGEST_LINE", 200)
    good = json.dumps(LEAST).encode()
    file = io.BytesIO(good + b"\n" + b"x" * 5000 + b"\n" + b"\n" + good)
    found = [(one.number, one.run is not None) for one in read_lines(file)]
    assert found == [(1, True), (2, False), (4, True)]
    assert "over 200 bytes" in str(next(read_lines(io.BytesIO(b"y" * 401))).problem)


def test_a_line_of_more_values_than_memory_has_room_for_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr(jsonl.json, "loads", lambda *args, **more: pytest.fail("it was parsed"))
    text = '{"question": "q", "steps": [' + "[]," * 2_100_000 + "[]]}"
    assert "brackets and commas" in str(next(read_lines(io.BytesIO(text.encode()))).problem)


def test_good_lines_are_read_around_bad_ones(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + line(id="1").encode() + b"\r\n{broken\n\n\x00\x01\n" + line(id=2).encode()
    )
    lines = list(read_lines(path))
    assert [(one.number, one.run and one.run.id) for one in lines] == [
        (1, "1"),
        (2, None),
        (4, None),
        (5, "2"),
    ]
    with pytest.raises(RunFormatError, match="line 2"):
        list(read_runs(path))


def test_a_file_that_cannot_be_read_or_written_is_said(tmp_path):
    with pytest.raises(StoreError, match="could not be read"):
        list(read_lines(tmp_path / "none.jsonl"))
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    with pytest.raises(StoreError, match="could not be read"):
        list(read_lines(tmp_path / "bad.gz"))
    with pytest.raises(StoreError, match="could not be written"):
        write_runs([a_run()], tmp_path / "none" / "runs.jsonl")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["question", "steps", "passages", "text", "score", "id", "metadata", "grade", "trace", "x"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_like)
def test_whatever_a_line_holds_it_is_a_run_or_a_problem(value):
    found = parse_line(json.dumps(value))
    assert (found.run is None) != (found.problem is None)


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_text_survives_a_file(question, passage):
    run = a_run(question="q" + question, steps=1, passages=0)
    run.steps[0].passages = run.steps[0].candidates = [Passage(passage)]
    read = parse_line(json.dumps(data_of_run(run))).run
    assert read.question == without_surrogates(run.question)
    assert read.steps[0].passages[0].text == without_surrogates(passage)


RICH = Score(
    "answerability", 4.0, "passage", "r1", "r1-s1", "p1", 2, 0.25, "4", "why", "gold", "m/seq", "nano/1",
    Usage(1, 2, 300, 4, 0.5, 1), "coverage", "2", "ff", 0, 3.7, {"n": 10}, "candidates",
)  # fmt: skip
FAILURE = Failure("belief", "EngineUnreachable", "nothing answers", True, "r1", "", 2, 5)


def scored():
    return [
        ScoredRun(a_run(), [*scores_of(a_run()), RICH], [FAILURE]),
        ScoredRun(a_run("r2"), scores_of(a_run("r2"))),
    ]


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
def test_score_file_comes_back_as_it_was(tmp_path, name):
    assert write_scores(scored(), tmp_path / name) == 7
    first, second = read_scored(tmp_path / name)
    assert first.run.id == "r1"
    assert first.run.question == a_run().question
    assert first.scores == [*scores_of(a_run()), RICH]
    assert first.failures == [FAILURE]
    assert second.scores == scores_of(a_run("r2"))
    with opened(tmp_path / name) as (file, _):
        data = json.loads(file.read().splitlines()[1])
    assert (data["format"], data["question"], data["step_index"]) == ("ragguard.score/1", a_run().question, 1)


def test_a_line_that_is_none_is_said_with_its_number(tmp_path):
    write_scores(scored(), tmp_path / "scores.jsonl")
    with (tmp_path / "scores.jsonl").open("a") as file:
        file.write('{"format": "ragguard.score/9"}\n')
    with pytest.raises(InvalidInput, match="line 9"):
        list(read_scored(tmp_path / "scores.jsonl"))
    with pytest.raises(StoreError, match="could not be read"):
        list(read_scored(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "high"}, "value: got 'high'; allowed: a number"),
        ({"value": float("nan")}, "JSON: .*NaN is no number of JSON's"),
        ({"usage": {"prompts": -1}}, "usage.prompts: got -1; allowed: a whole number, 0 or more"),
        ({"question": 5}, "question: got 5; allowed: a text"),
        ({"odd": 1}, "odd: got 1; allowed: no field of that name"),
    ],
)
def test_score_file_with_a_wrong_field_names_line_and_field(tmp_path, change, says):
    path = tmp_path / "scores.jsonl"
    write_scores(scored(), path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], json.dumps(json.loads(lines[1]) | change)]))
    with pytest.raises(InvalidInput, match=f"scores.jsonl, line 2, {says}"):
        list(read_scored(path))


@pytest.mark.parametrize("line", ["[]", "5", "null", '"text"', "{", "[" * 100_000])
def test_score_file_with_a_line_that_is_no_object_names_the_line(tmp_path, line):
    (tmp_path / "scores.jsonl").write_text(line)
    with pytest.raises(InvalidInput, match=r"scores.jsonl, line 1"):
        list(read_scored(tmp_path / "scores.jsonl"))


async def test_the_sink_appends_whole_runs(tmp_path):
    sink = JsonlSink(tmp_path / "scores.jsonl")
    for one in scored():
        await sink.submit(one)
    await sink.submit(ScoredRun(a_run("empty")))
    await sink.aclose()
    assert [one.run.id for one in read_scored(tmp_path / "scores.jsonl")] == ["r1", "r2"]
    with pytest.raises(InvalidInput, match="in a folder that exists"):
        JsonlSink(tmp_path / "none" / "scores.jsonl")
