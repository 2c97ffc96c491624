"""Data sets of single papers become contexts; what is wrong with one is told with its place."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from ragguard.errors import InvalidInput
from ragguard.metrics import coverage, udcg
from studies.readers import crux
from studies.readers import responses as retrieval_responses
from studies.readers import udcg as udcg_release
from studies.selections import Selections, all_together, tables


def lines(path, *objects):
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")
    return path


UDCG = {
    "example_id": "e", "question": "who?", "udcg": {"small": 0.51},
    "passages": [
        {"doc_id": "d1", "text": "x", "is_relevant": True, "models_info": {"small": {"no_res_prob": 0.1}}},
        {"doc_id": "d2", "text": "y", "is_relevant": False, "models_info": {"small": {"no_res_prob": 0.4}}},
    ],
}  # fmt: skip
OLD = {
    "example_id": "o", "question": "who?", "udcg_small": 0.51, "answers": ["Ada"], "outcome": 0,
    "passages": [{"text": "x", "is_relevant": True, "no_res_prob_small": 0.1},
                 {"text": "y", "is_relevant": False, "no_res_prob_small": 0.4}],
}  # fmt: skip


def test_the_examples_of_udcg_in_both_releases(tmp_path):
    path = tmp_path / "u.json"
    path.write_text(json.dumps([UDCG, OLD]))
    new, old = udcg_release.read(path)
    assert (new.id, new.question_id, new.relevance) == ("e", "who?", (1.0, 0.0))
    assert [passage.id for passage in new.passages] == ["d1", "d2"]
    assert new.given == pytest.approx(
        {"udcg, theirs (small)": 0.51, "udcg (small)": float(udcg([0.9, -0.6]))}
    )
    assert (old.given, old.references, old.outcome) == (pytest.approx(new.given), ("Ada",), 0.0)


GRADED = {
    "id": "N-5", "E": "L12", "Nc": 4, "Np": 2, "K": 3, "inK": [1, 0, 1], "rank": [1, 2, 0], "grade": 4,
    "answer_topK": "the firm", "answer_ideal": "the firm of Oslo", "P": 0.67, "R": 1.0,
}  # fmt: skip


TEXTS = {"id": "N-5", "q": "who?", "p": ["p0", "p1", "p2"], "n": ["n0", "n1"]}


def test_graded_samples_alone_and_with_their_texts(tmp_path):
    ((alone, _),) = retrieval_responses.read(lines(tmp_path / "graded.jsonl", GRADED))
    assert (alone.id, alone.question_id) == ("N-5/L12/4/2/3", "N-5/4/2")
    assert (alone.relevance, alone.ideal, alone.outcome) == ((1, 0, 1), (1, 1, 0, 0), 4)
    assert alone.given == pytest.approx({"f": 0.8, "t": 0.5 * 2 - 0.5 / 3, "t_u": alone.given["t_u"]})
    lines(tmp_path / "texts.jsonl", TEXTS)
    ((found, _),) = retrieval_responses.read(tmp_path)
    assert (found.question, [passage.text for passage in found.passages]) == ("who?", ["p1", "n0", "p0"])
    for rank, told in (
        ([1, 9, 0], "places below 4"),
        ([2, 1, 0], "one below Np"),
        ([1, 2], "for each of `inK`"),
    ):
        lines(tmp_path / "graded.jsonl", GRADED | {"rank": rank})
        with pytest.raises(InvalidInput, match=f"rank: .*{told}"):
            list(retrieval_responses.read(tmp_path))
    for wrong in ([1, 1, 1], [1, 0.5, 0]):
        lines(tmp_path / "graded.jsonl", GRADED | {"inK": wrong})
        with pytest.raises(InvalidInput, match=r"line 1, inK: .*at most Np = 2"):
            list(retrieval_responses.read(tmp_path))


RANKED = {
    "id": "N-5", "E": "L12", "Nc": 4, "Np": 2, "K": [1, 3], "rank": [1, 2, 0, 3], "P": [1.0, 0.667], "R": [0.5, 1.0],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sample", "known"), [("graded", GRADED, "inK"), ("ranked", RANKED, "rank"), ("texts", TEXTS, "q")]
)  # fmt: skip
def test_a_field_that_samples_do_not_have_is_named(tmp_path, name, sample, known):
    for file, one in (("graded", GRADED), ("ranked", RANKED), ("texts", TEXTS)):
        lines(tmp_path / f"{file}.jsonl", one if file != name else sample | {"embedding": "e1"})
    with pytest.raises(
        InvalidInput, match=rf"{name}.jsonl, line 1, embedding: .*no field of that name.*{known}"
    ):
        list(retrieval_responses.read(tmp_path))


def test_ranked_samples_tell_the_top_2k(tmp_path):
    lines(tmp_path / "graded.jsonl", GRADED, GRADED | {"K": 1, "inK": [1], "rank": [1]})
    lines(tmp_path / "ranked.jsonl", RANKED)
    (three, wide), (one, narrow) = retrieval_responses.read(tmp_path)
    # Twice three is more than there are candidates: all of them count.
    assert (wide.n_p_2k, narrow.n_p_2k) == (2, 1)
    assert one.given["f_e"] == pytest.approx(1 / (0.5 * 1 + 0.5 * 1))
    assert three.given["f_e"] == pytest.approx(2 / (0.5 * 3 + 0.5 * 2))
    assert (narrow.data, narrow.search, narrow.question) == ("N", "L12", "N-5")
    assert wide.values["nDCG@K"] == pytest.approx(1.5 / (1 + 1 / math.log2(3)))


@pytest.mark.parametrize(
    ("ranked", "graded", "told"),
    [
        ({"rank": [1, 2, 0]}, {}, r"rank: .*each of the Nc = 4 candidates once"),
        ({"rank": [1, 2, 0, 0]}, {}, r"rank: .*each of the Nc = 4 candidates once"),
        ({"K": [3, 1]}, {}, r"K: .*rising whole numbers from 1 to Nc = 4"),
        ({"K": []}, {}, r"K: .*rising whole numbers"),
        ({"K": [1, 5], "P": None, "R": None}, {}, r"K: .*rising whole numbers"),
        ({"P": [1.0, 0.3]}, {}, r"P: .*what `rank` gives for each K"),
        ({"R": [0.5]}, {}, r"R: .*what `rank` gives for each K"),
        ({"E": "other"}, {}, r"id: .*Np of one of the ranked samples"),
        ({"K": [1], "P": None, "R": None}, {}, r"K: .*one of the ranked sample's: \[1\]"),
        ({"rank": [0, 2, 1, 3]}, {}, r"rank: .*the beginning of the ranked sample's: \[0, 2, 1\]"),
        ({}, {"K": 4}, r"K: .*the length of `inK`, 3"),
        ({}, {"grade": 7}, r"grade: .*from 1 to 5"),
        ({}, {"grade": None}, r"grade: .*from 1 to 5"),
        ({}, {"Np": 0}, r"Np: .*1 to Nc = 4"),
    ],
)
def test_samples_that_contradict_each_other_are_one_clear_error(tmp_path, ranked, graded, told):
    lines(tmp_path / "graded.jsonl", GRADED | graded)
    lines(tmp_path / "ranked.jsonl", RANKED | ranked)
    with pytest.raises(InvalidInput, match=rf"(graded|ranked).jsonl, line 1, {told}"):
        list(retrieval_responses.read(tmp_path))


def test_ranked_samples_named_twice_or_alone_are_refused(tmp_path):
    lines(tmp_path / "ranked.jsonl", RANKED, RANKED)
    with pytest.raises(InvalidInput, match="no graded samples"):
        list(retrieval_responses.read(tmp_path))
    with pytest.raises(InvalidInput, match="no graded samples"):
        list(retrieval_responses.read(tmp_path / "ranked.jsonl"))
    lines(tmp_path / "graded.jsonl", GRADED)
    with pytest.raises(InvalidInput, match=r"line 2, id: .*these are there twice"):
        list(retrieval_responses.read(tmp_path))


def test_a_crux_folder(tmp_path):
    lines(tmp_path / "topics.jsonl", {"id": "t", "topic": "Report on it", "subtopics": ["a", "b", "c"]})
    lines(
        tmp_path / "ratings.jsonl",
        {"id": "t", "docid": "d1", "rating": [5, 0, 0]},
        {"id": "t", "docid": "d2", "rating": [0, 3, 2]},
    )
    (tmp_path / "one.run").write_text("t Q0 d1 1 2 x\nt Q0 d7 2 1 x\n")
    (found,) = list(crux.read(tmp_path, 10))
    assert (found.question, found.sub_questions, found.relevance) == ("Report on it", ("a", "b", "c"), (1, 0))
    assert found.given["coverage"] == pytest.approx(
        float(coverage([[5, 0, 0], [0, 0, 0]], 3, [True, True, False]))
    )
    assert found.given["coverage"] == 0.5
    # The best context of two passages answers a and b in turn; this one answers a alone.
    assert found.given["alpha_ndcg"] == pytest.approx(1 / (1 + 1 / np.log2(3)))
    lines(tmp_path / "outcomes.jsonl", {"question_id": "t", "run": "two", "outcome": 0})
    (tmp_path / "two.run").write_text("")
    assert [context.given for context in list(crux.read(tmp_path, 10))] == [found.given, {"coverage": 0.0}]
    rated = {"id": "t", "docid": "d1", "rating": [5, 0, 0]}
    lines(tmp_path / "ratings.jsonl", rated, rated, rated | {"rating": [0, 0, 0]})
    with pytest.raises(InvalidInput, match=r"line 3, rating: .*one rating a passage"):
        list(crux.read(tmp_path, 10))
    lines(tmp_path / "ratings.jsonl", {"id": "t", "docid": "d1", "rating": [5, 0]})
    with pytest.raises(InvalidInput, match=r"line 1, rating: .*3 numbers"):
        list(crux.read(tmp_path, 10))


def test_a_context_that_covers_all_is_ideal_however_often_each_fact_is_stated(tmp_path):
    lines(tmp_path / "topics.jsonl", {"id": "t", "topic": "Report", "subtopics": ["a", "b", "c"]})
    rated = [
        {"id": "t", "docid": f"d{fact}{copy}", "rating": [5 * (fact == at) for at in range(3)]}
        for copy in range(5) for fact in range(3)
    ]  # fmt: skip
    lines(tmp_path / "ratings.jsonl", *rated)
    (tmp_path / "one.run").write_text(
        "".join(f"t Q0 d{fact}0 {fact + 1} {3 - fact} x\n" for fact in range(3))
    )
    (found,) = list(crux.read(tmp_path, 10))
    assert found.given["alpha_ndcg"] == pytest.approx(1.0)


def test_a_crux_folder_as_its_scripts_write_it(tmp_path):
    lines(
        tmp_path / "test_topics_exam_questions.jsonl",
        {"example_id": "t", "topic": "Report on it", "questions": ["a", "b"]},
    )
    lines(tmp_path / "test_judgements.jsonl", {"example_id": "t", "pid": "t:0#0", "rating": [5, 0]},
          {"example_id": "t", "pid": "t:0#1", "rating": [0, 4]})  # fmt: skip
    (tmp_path / "test_qrels_oracle_context_pr.txt").write_text("t 0 t:0#0 3\nt 0 t:0#1 3\n")
    (tmp_path / "one.run").write_text("t Q0 t:0#1 1 2 x\n")
    (found,) = list(crux.read(tmp_path, 10))
    assert (found.sub_questions, found.relevance, found.given["coverage"]) == (("a", "b"), (3,), 0.5)


def test_retrieval_response_data_get_their_papers_analysis(tmp_path):
    """Grades that are exactly T at α = 0.2, and nothing else, are found out."""
    ranked, graded = [], []
    for number in range(12):
        for search in ("AM", "ES"):
            rank = sorted(range(8), key=lambda place: (place * 7 + number * 3 + (search == "ES")) % 8)
            key = {"id": f"N-{number}", "E": search, "Nc": 8, "Np": 3}
            ranked.append({**key, "K": [2, 3, 4, 6], "rank": rank})
            for k in (2, 3, 4, 6):
                hits = [int(place < 3) for place in rank[:k]]
                grade = 1 + sum(hits) + (sum(hits) == k)
                graded.append({**key, "K": k, "inK": hits, "rank": rank[:k], "grade": grade})
    for name, samples in (("ranked", ranked), ("graded", graded)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    graded = [(selection, context.outcome) for context, selection in retrieval_responses.read(tmp_path)]
    found = {table.name: table for table in tables(all_together(Selections.of(graded)))}
    assert {"sets-correlations", "sets-searches", "sets-segments", "sets-alpha"} <= found.keys()
    pooled = found["sets-correlations"]
    rows = {row[0]: dict(zip(pooled.columns, row, strict=True)) for row in pooled.rows}
    assert rows["N-n"]["T"] == pytest.approx(1)
    assert rows["N-n"]["contexts"] == 24
    assert rows["N-w"]["contexts"] == 72
    assert {row[0] for row in found["sets-searches"].rows} == {"N-n, AM", "N-n, ES", "N-w, AM", "N-w, ES"}


FIELDS = sorted({*retrieval_responses.GRADED, *retrieval_responses.RANKED, *retrieval_responses.TEXTS})
README = Path(__file__).parents[2] / "studies" / "readers" / "README.md"


def test_the_retrieval_response_files_on_the_page_are_read(tmp_path):
    blocks = re.findall(
        r"`(\w+\.jsonl)`, one line [^\n]*\n\n```text\n(.*?\n)```", README.read_text(), re.DOTALL
    )
    assert [name for name, _ in blocks] == ["graded.jsonl", "ranked.jsonl", "texts.jsonl"]
    for count, (name, lines) in enumerate(blocks, 1):
        (tmp_path / name).write_text(lines)
        (one, _), (three, _) = retrieval_responses.read(tmp_path)
        assert (one.relevance, three.relevance, three.outcome) == ((1,), (1, 0, 1), 5)
        assert ("f_e" in three.given) == (count > 1)
    assert three.question == "Who founded Nordvik?"
    assert [passage.text[:4] for passage in three.passages] == ["Nord", "Oslo", "Ada "]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_retrieval_response_file_is_on_the_page(name):
    assert f"`{name}`" in README.read_text()
