"""Records: one value where several may stand is a list of one, never taken apart."""

from __future__ import annotations

import json
import multiprocessing

import pytest

from ragguard import Passage, RetrievalStep, Run
from ragguard.records import new_id
from ragguard.storage.files.runfile import read_runs


def test_one_reference_is_one_reference():
    run = Run(
        references="East Dundale",
        sub_questions="Where is it?",
        pool="a text",
        steps=RetrievalStep(query="hop"),
    )
    assert (run.references, run.sub_questions, run.pool) == (
        ["East Dundale"],
        ["Where is it?"],
        [Passage("a text")],
    )
    assert [step.query for step in run.steps] == ["hop"]


def test_one_passage_is_one_passage():
    step = RetrievalStep(passages="a text", candidates=Passage("a text", "1"))
    assert (step.passages, step.candidates) == ([Passage("a text")], [Passage("a text", "1")])


def test_lists_and_nothing_stay_what_they_are():
    texts = ["a", "b"]
    run = Run(references=texts)
    assert run.references is texts
    assert (Run().references, Run().steps, RetrievalStep().passages) == (None, [], [])


@pytest.mark.parametrize("field", ["references", "sub_questions"])
def test_one_text_in_a_run_file_is_one(tmp_path, field):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"id": "x", "question": "who?", "steps": [], field: "East Dundale"}) + "\n")
    (run,) = read_runs(path)
    assert getattr(run, field) == ["East Dundale"]


def test_new_id_of_a_forked_child_differs_from_those_of_its_parent():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        ids = [new_id(), *pool.map(_ids, [5, 5], chunksize=1)]
    flat = [ids[0], *(one for some in ids[1:] for one in some)]
    assert len(set(flat)) == len(flat) == 11
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in flat)


def _ids(count):
    return [new_id() for _ in range(count)]
