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
