"""Entailers are compared on pairs of known relation; a file of pairs is checked line by line."""

import json

import numpy as np
import pytest

from ragguard.engines.entailment import RELATIONS, Entailments
from ragguard.errors import InvalidInput
from ragguard.lab.validation.entailers import WordEntailer, compare_entailers, entailer_of, read_pairs

PAIRS = [
    {"question": "Who?", "premise": "Ada Berg", "hypothesis": "It was Ada Berg.", "relation": "entailment"},
    {"question": "Who?", "premise": "Ada Berg", "hypothesis": "Olaf Dahl", "relation": "contradiction"},
    {"question": "Who?", "premise": "Ada Berg", "hypothesis": "a doctor", "relation": "neutral"},
]


class Told(WordEntailer):
    """Gives the relation that stands in the list, with three quarters of the probability."""

    def __init__(self, relations):
        self.relations = relations

    async def entail(self, pairs, *, deadline=None, priority=0):
        p = np.full((len(pairs), 3), 0.125)
        p[range(len(pairs)), [RELATIONS.index(one) for one in self.relations]] = 0.75
        return Entailments(p)


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in PAIRS))
    return path


async def test_the_right_one_is_right_and_words_see_no_contradiction(pairs):
    known = read_pairs(str(pairs))
    right = Told([one["relation"] for one in PAIRS])
    tables = await compare_entailers({"right": right, "words": WordEntailer()}, known)
    rows = {row[0]: row for row in tables[0].rows}
    assert rows.keys() == {"right", "words"}
    assert rows["right"][1] == rows["right"][4] == rows["right"][5] == 1.0
    assert rows["words"][1] == pytest.approx(2 / 3)
    assert (rows["words"][4], rows["words"][5]) == (1.0, 0.5)
    assert [row[0] for row in tables[1].rows] == ["right", "words"]
    assert tables[1].rows[0][1] == pytest.approx(1.0)


def test_the_examination_has_as_many_answers_that_agree_as_that_do_not():
    relations = [relation for _, relation in read_pairs("exam")]
    assert relations.count("entailment") == relations.count("contradiction") == len(relations) / 2 > 10


def test_a_relation_that_is_none_is_named_with_its_line(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(PAIRS[0]) + "\n" + json.dumps({**PAIRS[1], "relation": "no"}) + "\n")
    with pytest.raises(InvalidInput, match=r"line 2, relation.*entailment, neutral, contradiction"):
        read_pairs(str(path))


async def test_addresses_name_words_an_nli_model_or_an_engine():
    assert (await entailer_of("words").info()).kind == "words"
    assert (await entailer_of("nano").info()).kind == "nano"
    with pytest.raises(InvalidInput, match="entailer"):
        await entailer_of("nli:nano").info()
