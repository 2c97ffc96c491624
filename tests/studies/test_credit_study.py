"""The study of which hop paid: the runs that it is made of, from files as their authors give them, and its tables."""

import json

import numpy as np
import pytest

from ragguard import connect
from ragguard.errors import StoreError
from studies.credit import CHOSE_NOTHING, DRAW, SHOWN, _aucs, data_runs, make_run, study, world_runs
from studies.readers.multi_hop import read, read_hotpotqa

TITLES = [f"Title {number}" for number in range(10)]


def musique(number):
    return {
        "question": f"Where was the founder of firm {number} born?",
        "answer": "Oslo",
        "answer_aliases": ["Oslo, Norway", "Oslo"],
        "paragraphs": [
            {"idx": at, "title": title, "paragraph_text": f"Text {at}.", "is_supporting": at in (2, 5)}
            for at, title in enumerate(TITLES)
        ],
        "question_decomposition": [
            {"question": "firm >> founder", "answer": "Ada Berg", "paragraph_support_idx": 2},
            {"question": "#1 >> born in", "answer": "Oslo", "paragraph_support_idx": 5},
        ],
    }


def hotpotqa(kind="bridge", facts=("Title 5", "Title 2")):
    return {
        "question": "Where was the founder born?",
        "answer": "Oslo",
        "type": kind,
        "context": [
            [title, [f"Text {at}.", " Oslo." if at == 5 else " More."]] for at, title in enumerate(TITLES)
        ],
        "supporting_facts": [[title, 0] for title in facts],
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "musique.jsonl").write_text("\n".join(json.dumps(musique(number)) for number in range(20)))
    (tmp_path / "hotpotqa.jsonl").write_text("\n".join(json.dumps(hotpotqa("comparison")) for _ in range(5)))
    return tmp_path


def test_each_hop_has_its_paragraph_between_two_others_and_one_hop_has_only_others(folder):
    one = next(read(folder / "musique.jsonl"))
    run = make_run(one, seed=0)
    assert run.references == ["Oslo", "Oslo, Norway"]
    assert sorted(step.metadata["role"] for step in run.steps) == ["gold", "gold", "useless"]
    assert [step.query for step in run.steps if step.metadata["role"] == "gold"] == [
        "firm >> founder", "Ada Berg >> born in",
    ]  # fmt: skip
    texts = [passage.text for step in run.steps for passage in step.passages]
    assert len(set(texts)) == len(texts) == 9
    gold = [p.text for step in run.steps for p in step.passages if p.metadata["role"] == "gold"]
    assert gold == ["Title 2\nText 2.", "Title 5\nText 5."]
    assert make_run(one, seed=0).steps == run.steps
    assert make_run(one, seed=1).steps != run.steps


def test_the_bridge_of_hotpotqa_comes_before_what_states_the_answer(tmp_path):
    path = tmp_path / "hotpotqa.json"
    path.write_text(json.dumps([hotpotqa(), hotpotqa("comparison"), hotpotqa(facts=("Title 5", "No title"))]))
    bridge, comparison = read_hotpotqa(path)
    assert [part.paragraph for part in bridge.parts] == [2, 5]
    assert [part.needs for part in bridge.parts] == [frozenset(), {0}]
    assert [part.paragraph for part in comparison.parts] == [5, 2]
    assert not any(part.needs for part in comparison.parts)


def test_questions_that_chose_a_form_are_marked_and_measured_ones_left_out(folder, monkeypatch):
    monkeypatch.setattr("studies.credit.LEFT_OUT", "")
    monkeypatch.setattr("studies.credit.CHOSEN_BY", {"MuSiQue, 2 hops": 14})
    monkeypatch.setattr("studies.credit.MEASURED", {"HotpotQA, 2 hops, comparison": 1})
    groups = data_runs(folder, 60, seed=0)
    assert {name: len(runs) for name, runs in groups.items()} == {
        "HotpotQA, 2 hops, comparison": 4, "MuSiQue, 2 hops": 20,
    }  # fmt: skip
    assert sum(CHOSE_NOTHING in run.metadata for run in groups["MuSiQue, 2 hops"]) == 6
    first = next(read(folder / "musique.jsonl"))
    assert groups["MuSiQue, 2 hops"][0].steps == make_run(first, DRAW).steps
    with pytest.raises(StoreError, match="hotpotqa"):
        data_runs(folder / "no", 60, seed=0)


def test_all_runs_of_the_world_are_complete_misled_or_miss_a_passage():
    runs = world_runs(3, seed=0)["nano's world, 2 hops, all runs"]
    assert [sorted(step.metadata["role"] for step in run.steps) for run in runs] == [
        ["gold", "gold", "useless"], ["gold", "misled", "useless"], ["gold", "missed", "useless"],
    ]  # fmt: skip


def test_the_first_and_the_last_needed_hop_have_figures_of_their_own():
    # Value, needed, place and run: the first needed hop is never found, the last one always.
    table = np.array(
        [[0, 1, 1, 0], [2, 1, 3, 0], [1, 0, 0, 0], [0, 1, 1, 1], [2, 1, 3, 1], [1, 0, 0, 1]], dtype=float
    )
    first, last, everything, low, high, within = _aucs(table, seed=0)
    assert (first, last, everything, within) == (0.0, 1.0, 0.5, 0.5)
    assert low == high == 0.5


def test_draws_of_one_question_are_drawn_together():
    # The needed hop has the larger value in the runs of the first question, the smaller one in those of the second.
    table = np.array(
        [row for run in range(4) for row in ([1, 1, 1, run], [0 if run < 2 else 2, 0, 0, run])], dtype=float
    )
    *_, low, high, _ = _aucs(table, 0, np.array([0, 0, 1, 1]))
    assert (low, high) == (0.0, 1.0)


@pytest.mark.slow
async def test_tables_have_a_row_for_each_number_and_one_hop_is_plain():
    hops, cost, seeds = await study(connect("nano"), questions=3)
    assert [row[0].partition(", ")[0] for row in seeds.rows[:2]] == ["seed 52001"] * 2
    assert sum("median of 1 seeds" in row[0] for row in seeds.rows) == 8
    known = {row[0]: row for row in hops.rows}
    assert known[f"nano's world, 1 hop, complete: {SHOWN}"][3] == 1.0
    assert known["nano's world, 2 hops, complete: credit"][3] >= 0.9
    assert all(row[2] <= 2 * row[1] + 2 for row in cost.rows)
