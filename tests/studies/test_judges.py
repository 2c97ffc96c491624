"""Studies told for judges of several strengths, on a small size."""

import pytest
from support.rows import rows_of

from ragguard import connect
from ragguard.engines.layers import Cache
from studies import weak_judges
from studies.hard_world import hard_cases
from studies.judges import CONTEXTS, OWN, SIZE, THRESHOLDS, contexts_of, study

pytestmark = pytest.mark.slow

JUDGES = [OWN, *(f"AUC {strength:g}" for strength in weak_judges.STRENGTHS)]


def test_half_of_the_contexts_hold_an_answer_and_none_its_grades() -> None:
    contexts = contexts_of(hard_cases(3, seed=1), seed=0)
    assert len(contexts) == 3 * CONTEXTS
    assert [sum(context.relevance) > 0 for context in contexts] == [True, False] * (3 * CONTEXTS // 2)
    assert {len(context.passages) for context in contexts} == {SIZE}
    assert {passage.grade for context in contexts for passage in context.passages} == {None}


async def test_a_small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weak_judges, "CASES", 30)
    engine = Cache(connect("nano"))
    tables = {table.name: table for table in await study(engine, questions=5, seed=0)}
    assert [row[0] for row in tables["judges-relevance"].rows] == JUDGES
    rows = rows_of(tables["judges-agreement"])
    assert list(rows) == JUDGES
    # The weaker the judge is stated to be, the further it is from the truth, and the harder world is harder.
    for column in ("AUC, plain world", "AUC, harder world", "κ of relevance"):
        values = [rows[judge][column] for judge in JUDGES]
        assert values[0] > values[2] > values[4], column
    assert rows[OWN]["AUC, harder world"] < rows[OWN]["AUC, plain world"]
    assert rows[OWN]["against near name"] < rows[OWN]["against unrelated"]
    goes = {row[:2]: row[2] for row in tables["judges-metrics"].rows}
    assert goes[OWN, "udcg"] > goes["AUC 0.8", "udcg"]
    assert len({goes[judge, "harm (negative)"] for judge in JUDGES}) > 1
    guard = {row[:2]: row for row in tables["judges-guard"].rows}
    assert set(guard) == {
        ("no guard", None),
        *((judge, threshold) for judge in JUDGES for threshold in THRESHOLDS),
    }
    # A weaker judge drops more of the gold.
    assert guard[OWN, -0.2][2] < guard["AUC 0.8", -0.2][2]
    covered = {row[0]: row for row in tables["judges-coverage"].rows}
    assert covered[OWN][1] > covered["AUC 0.8"][1]
