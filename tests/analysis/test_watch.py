"""One line a run while it goes on."""

from dataclasses import replace

import pytest

from ragguard.analysis.watch import is_scored, watch_line, watch_table
from ragguard.records import PROVISIONAL, Failure, Passage, RetrievalStep, Run, Score, ScoredRun


def scored(status="ok"):
    steps = [
        RetrievalStep(id=f"s{n}", index=n, query="q", passages=[Passage("a"), Passage("b")]) for n in range(2)
    ]
    scores = [
        Score("delta_seper", 0.04, "step", "r", "s0", reference_source="gold"),
        Score("udcg", 0.644, "step", "r", "s0"),
        Score("udcg", 0.5, "step", "r", "s0", stage="candidates"),
        Score("coverage", 0.5, "step", "r", "s0"),
        Score("utility", -0.8, "passage", "r", "s0", position=1),
        Score("delta_seper", -0.3, "step", "r", "s1", reference_source="gold"),
        Score("contested", 0.5, "step", "r", "s1"),
        Score("delta_seper_total", -0.26, "run", "r", reference_source="gold"),
        Score("answer_correct", 0.0, "run", "r", label="wrong"),
    ]
    return ScoredRun(Run(id="r", question="[b]Who?\x1b[31m", steps=steps, status=status), scores)


def test_a_scored_run_is_one_line_with_its_hops():
    line = watch_line(scored())
    assert "1 ΔSePer +0.04 · UDCG 0.644 · coverage 0.50 1 misleading  2 ΔSePer -0.30 contested" in line
    assert "ΔSePer -0.26  wrong" in line
    assert "[b]Who?" in line
    assert "\x1b" not in line


def test_passage_that_the_model_did_not_get_is_not_called_misleading():
    one = scored()
    step = one.run.steps[0]
    step.passages = step.candidates = [Passage("a"), Passage("b")]
    assert "misleading" in watch_line(one)
    step.passages = [Passage("b")]
    assert "misleading" not in watch_line(one)


@pytest.mark.parametrize(
    ("status", "scores", "failures", "told"),
    [("open", [], [], "running"), ("ok", [], [], "not scored yet"), ("interrupted", [], [], "waits to go on"),
     ("ok", [], [Failure("belief", "X", "x")], "not scored"), ("abandoned", [], [], "abandoned")],
)  # fmt: skip
def test_run_without_a_verdict_shows_its_status(status, scores, failures, told):
    one = replace(scored(status), scores=scores, failures=failures)
    line = watch_line(one)
    assert line.endswith(told)
    assert "1 2 passages  2 2 passages" in line
    assert is_scored(one) == bool(failures)


def test_a_hop_with_other_numbers_shows_these():
    grades = [Score(name, 0.5, "step", "r", "s0") for name in ("precision_at_grade", "harm", "t", "ra_nwg")]
    line = watch_line(replace(scored(), scores=grades))
    assert "1 2 passages · precision_at_grade 0.50 · harm 0.50 · t 0.50  2 2 passages" in line
    assert not line.endswith("not scored yet")


def test_a_run_whose_end_is_not_scored_yet_shows_what_is_known_so_far():
    early = [replace(one, metadata={PROVISIONAL: True}) for one in scored().scores if one.step_id]
    going, ended = replace(scored("open"), scores=early), replace(scored(), scores=early)
    assert watch_line(going).endswith("running")
    assert "1 ΔSePer +0.04 · UDCG 0.644 · coverage 0.50" in watch_line(going)
    assert watch_line(ended).endswith("so far")
    assert [is_scored(one) for one in (going, ended, scored())] == [False, False, True]


@pytest.mark.parametrize(
    ("gain", "colour"), [(-0.3, "red"), (0.3, "green"), (-0.15, "bright_black"), (0.0, "bright_black")]
)
def test_a_gain_has_colour_only_beyond_two_standard_errors(gain, colour):
    total = Score("delta_seper_total", gain, "run", "r", stderr=0.1)
    table = watch_table([ScoredRun(Run("r", "who?"), [total])])
    (cell,) = table.columns[3].cells
    assert str(cell.style) == colour
    assert not cell.plain.startswith("-0.00")
