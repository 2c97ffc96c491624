"""Score files: written and read back."""

import json

import pytest
from support.runs import a_run, scores_of

from ragguard.errors import InvalidInput, StoreError
from ragguard.records import Failure, Score, ScoredRun, Usage
from ragguard.storage.files.runfile import check_score_file, write_scores
from ragguard.storage.source import read_scored
from ragguard.storage.sqlite.ledger import ScoringOutcome
from ragguard.storage.sqlite.store import Store
from ragguard.telemetry.jsonl import JsonlSink

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


def test_json_lines_come_back_as_they_were(tmp_path):
    assert write_scores(scored(), tmp_path / "scores.jsonl") == 7
    first, second = read_scored(tmp_path / "scores.jsonl")
    assert first.run.id == "r1"
    assert first.run.question == a_run().question
    assert first.scores == [*scores_of(a_run()), RICH]
    assert first.failures == [FAILURE]
    assert second.scores == scores_of(a_run("r2"))
    data = json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[1])
    assert (data["format"], data["question"], data["step_index"]) == ("ragguard.score/1", a_run().question, 1)


def test_score_file_that_cannot_be_written_is_refused_beforehand(tmp_path):
    check_score_file(tmp_path / "scores.jsonl")
    for path in (tmp_path, tmp_path / "nowhere" / "scores.jsonl"):
        with pytest.raises(InvalidInput, match="in a folder that is there"):
            check_score_file(path)
    with pytest.raises(InvalidInput, match="a file of JSON lines, which `pandas"):
        check_score_file(tmp_path / "scores.parquet")


def test_a_store_reads_like_a_score_file(tmp_path):
    store = Store(tmp_path / "s.db")
    store.add_scored([ScoredRun(a_run())])
    store.store_outcome(ScoringOutcome("r1", "x", 1, scores_of(a_run())))
    store.close()
    [one] = read_scored(tmp_path / "s.db")
    assert one.scores == scores_of(a_run())


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
        ({"metadata": [1]}, r"metadata: got \[1\]; allowed: an object"),
        ({"value": "high"}, "value: got 'high'; allowed: a number"),
        ({"value": None}, "value: got None; allowed: needed"),
        ({"value": float("nan")}, "value: got nan; allowed: a finite number"),
        ({"value": 10**400}, "value: .*a number"),
        ({"level": "page"}, "level: got 'page'; allowed: passage, step, run"),
        ({"name": ["a"]}, r"name: got \['a'\]; allowed: a text"),
        ({"usage": {"prompts": -1}}, "usage.prompts: got -1; allowed: a whole number, 0 or more"),
        ({"usage": 5}, "usage: got 5; allowed: an object"),
        ({"stderr": "wide"}, "stderr: got 'wide'; allowed: a number"),
        ({"position": 1.5}, "position: got 1.5; allowed: a whole number"),
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
    with pytest.raises(InvalidInput, match=r"scores.jsonl, line 1: .*object"):
        list(read_scored(tmp_path / "scores.jsonl"))


async def test_the_sink_appends_whole_runs(tmp_path):
    sink = JsonlSink(tmp_path / "scores.jsonl")
    for one in scored():
        await sink.submit(one)
    await sink.submit(ScoredRun(a_run("empty")))
    await sink.aclose()
    assert [one.run.id for one in read_scored(tmp_path / "scores.jsonl")] == ["r1", "r2"]
    with pytest.raises(StoreError, match="no folder"):
        JsonlSink(tmp_path / "none" / "scores.jsonl")
