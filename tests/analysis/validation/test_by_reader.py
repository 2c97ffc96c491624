"""Several readers answer the same contexts, each for itself."""

import pytest

from ragguard import world
from ragguard.analysis.validation.by_reader import compare_readers
from ragguard.analysis.validation.contexts import Context
from ragguard.engines.base import Sample, Samples
from ragguard.engines.connect import connect
from ragguard.errors import InvalidInput

NANO = connect("nano")


class Mute:
    """Reads like nano and always abstains."""

    info, label_probs, aclose = NANO.info, NANO.label_probs, NANO.aclose

    async def sample(
        self, prompts, n=10, max_tokens=64, temperature=1.0, seed=None, *, deadline=None, priority=0
    ):
        return Samples([[Sample("NO-RESPONSE", (-0.1,))] * n for _ in prompts])


def contexts(n):
    for case in world.cases(n, seed=5):
        for kind, relevance in (("gold", 1), ("contradiction", 0), ("unrelated", 0)):
            yield Context(
                id=f"{case.question} {kind}", question_id=case.question, question=case.question,
                passages=tuple(case.of_kind(kind)[:1]), references=tuple(case.references),
                relevance=(float(relevance),), answer="what another model said", outcome=2.0,
            )  # fmt: skip


async def test_each_reader_answers_for_itself_and_has_its_own_correlations_and_beliefs():
    tables, failed = await compare_readers(
        list(contexts(6)), {"nano": NANO, "mute": Mute()}, scorers=("utility", "belief")
    )
    assert failed == []
    rows = {row[0]: row for row in tables[0].rows}
    assert rows["nano: with a relevant passage"][1:4] == (100.0, 0.0, 0.0)
    assert rows["nano: without a relevant passage"][1:4] == (0.0, 50.0, 50.0)
    assert rows["mute"][1:4] == (0.0, 100.0, 0.0)
    before, after, change, low, high = rows["nano: with a relevant passage"][4:9]
    assert change == pytest.approx(after - before)
    assert low <= change <= high
    assert change > 0.5
    assert tables[1].columns == ("metric", "nano", "from", "to")  # all outcomes of the other one are alike
    assert "mute: no metric can be compared" in " ".join(tables[0].notes)


async def test_contexts_without_references_cannot_be_answered_anew():
    one = next(contexts(1))
    with pytest.raises(InvalidInput, match="references and texts"):
        await compare_readers([Context(id="a", question_id="a", question="Who?", passages=one.passages)], {})
