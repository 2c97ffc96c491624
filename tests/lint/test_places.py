"""Each fact is decided in one place: a verdict, K, an amended step, which score counts, utility, and others."""

import ast
from pathlib import Path

import pytest

from benchmarks.places import FACTS, decided, places

FOUND = places(Path(__file__).parents[2])
SECOND = {
    "verdict of a passage": "word = 'misleads' if score.utility < -0.2 else ''",
    "K of a step": "k = step.k or len(step.passages)",
    "a step amended": "step = replace(step, decision=event.decision)",
    "which score counts": "def latest_scores(scores): ...",
    "utility": "u = (2 * p_relevant - 1) * (1 - p_abstain)",
    "settings": "def serve(queue_bytes: int = 2**20): ...",
    "names of documents": "KEYS = ('page_content', 'text')",
    "normalising of texts": "text = unicodedata.normalize('NFC', text)",
    "codec of a run": "data = {'id': run.id, 'question': run.question}",
    "entailment's stack": "class EntailmentCache: ...",
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_decided_in_one_place(fact):
    assert len(FOUND[fact]) == 1, FOUND[fact]


@pytest.mark.parametrize("fact", FACTS)
def test_a_second_place_is_found(fact):
    assert list(decided(ast.parse(SECOND[fact]))) == [fact]


def test_other_code_is_no_place():
    assert not list(
        decided(ast.parse("def score(u, threshold=0.5):\n    return u * 2 - 1 if u > threshold else None"))
    )
