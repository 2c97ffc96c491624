"""`ragguard metrics`, as a user calls it."""

import pytest
from support.commands import ragguard

from ragguard.metrics import METRICS


def run(*arguments, width="200"):
    return ragguard("metrics", *arguments, env={"COLUMNS": width, "TERM": "dumb"})


@pytest.mark.parametrize("width", ["80", "200"])
def test_every_metric_is_shown(width):
    result = run("--all", width=width)
    assert result.exit_code == 0
    for name in METRICS:
        assert name in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= int(width)


def test_four_metrics_that_decide_are_shown_first_and_the_number_of_the_others():
    shown = run().stdout
    for name in ("answer_correct", "delta_seper_total", "udcg_context", "coverage_total"):
        assert name in shown
    assert "semantic_entropy" not in shown
    assert f"{len(METRICS) - 4} more: --all" in shown


def test_one_metric_by_name():
    result = run("alpha_ndcg")
    assert "α-nDCG" in result.stdout
    assert "CRUX" in result.stdout
    assert "udcg" not in result.stdout


def test_an_unknown_name_is_refused():
    result = run("ndgc")
    assert result.exit_code == 2
    assert "ndgc" in result.stderr
    assert "ndcg" in result.stderr
