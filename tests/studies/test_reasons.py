"""Reasons stand under nano's tables and under nobody else's."""

from dataclasses import replace

from ragguard import connect
from ragguard.analysis.tables import Table
from studies import STUDIES
from studies.page import kept_results
from studies.reasons import ON_NANO, with_reasons

TABLE = Table("belief-samples", "Title", ("n", "r"), ((1, 0.5),), notes=("how it came about",))


def test_each_reason_is_of_a_table_that_a_study_makes():
    tables = [table["name"] for name in STUDIES for table in kept_results(name)["tables"]]
    assert ON_NANO.keys() <= set(tables)


async def test_reasons_hold_where_nano_reads_and_judges() -> None:
    nano = await connect("nano").info()
    other = replace(nano, prompts="default")
    assert with_reasons([TABLE], nano, nano)[0].notes == ("how it came about", *ON_NANO["belief-samples"])
    assert with_reasons([TABLE], nano, other) == [TABLE]
    assert with_reasons([TABLE], other, nano) == [TABLE]
    unknown = replace(TABLE, name="another")
    assert with_reasons([unknown], nano, nano) == [unknown]
