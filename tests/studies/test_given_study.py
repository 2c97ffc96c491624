"""The study of utility given what was read, small: what it must show whatever the seed."""

import asyncio

import numpy as np
import pytest

from ragguard.engines.connect import connect
from ragguard.errors import InvalidInput
from studies.given import METRICS, study


@pytest.fixture(scope="module")
def tables():
    found = asyncio.run(study(connect("nano"), questions=6, seed=3))
    return {table.name: table for table in found}


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_second_hop_earns_what_it_completes(tables):
    earned = rows(tables["given-passages"])
    number, own, given = earned["hop 2: gold"]
    assert number > 10
    assert own > 0.8
    assert given > 0.3
    assert given > 5 * abs(earned["hop 2: unrelated"][2])
    assert earned["hop 1: gold"][2] < 0.2


def test_every_metric_has_a_correlation_in_its_interval(tables):
    found = rows(tables["given-correlations"])
    assert tuple(found) == METRICS
    for value, low, high in found.values():
        assert -1 <= value <= 1
        assert np.isnan(low) or low <= value <= high


def test_given_study_without_a_question_is_refused():
    with pytest.raises(InvalidInput, match="questions"):
        asyncio.run(study(connect("nano"), questions=0))
