"""`ragguard compare` and `ragguard report` on real stores: what they print, and their exit codes."""

import json
from dataclasses import replace

import pytest
from support.commands import ragguard
from support.compared import scored, side
from support.stored import scored_store

from ragguard.records import Failure, Run, Score, ScoredRun
from ragguard.storage.files.runfile import write_scores


def test_two_stores_are_compared(tmp_path):
    a, b = scored_store(tmp_path / "a.db", side(0)), scored_store(tmp_path / "b.db", side(0.05, 1))
    done = ragguard("compare", a, b, code=0)
    assert done.output.startswith("Better: list quality (udcg) +0.0")
    assert "udcg ↑" in done.output
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.db", "b.db"]


def test_equal_sides_are_identical_in_a_line(tmp_path):
    a = scored_store(tmp_path / "a.db", side(0))
    said = ragguard("compare", a, a).output
    assert said.startswith("Identical: 40 questions with the same score on both sides.\n")
    assert "difference" not in said
    assert json.loads(ragguard("compare", a, a, "--json").output)["verdict"]["word"] == "identical"


@pytest.fixture
def harmed_sides(tmp_path):
    """Two stores with another metric, which rises from 0.1 to 0.5."""
    before, after = side(0), side(0.05, 1)
    for runs, harm in ((before, 0.1), (after, 0.5)):
        for item in runs:
            item.scores.append(Score("harm", harm, "step", item.run.id, item.run.steps[0].id))
    return scored_store(tmp_path / "a.db", before), scored_store(tmp_path / "b.db", after)


def test_metrics_beside_the_primary_ones_are_shown_with_all(harmed_sides):
    a, b = harmed_sides
    said = ragguard("compare", a, b).output
    assert "More metrics: 1, of which these differ: harm; --all shows them." in said
    everything = ragguard("compare", a, b, "--all").output
    assert "harm ↓" in everything


def test_difference_that_may_be_the_judges_is_remarked(tmp_path):
    before, after = side(0), side(0)
    for item in after:
        item.scores = [replace(score, engine="other") for score in item.scores]
        item.failures.append(Failure("belief", "EngineTimeout", "too late", False, item.run.id))
    write_scores(after, tmp_path / "b.jsonl")
    done = ragguard("compare", scored_store(tmp_path / "a.db", before), tmp_path / "b.jsonl")
    said = " ".join(done.output.split())
    assert (
        "Not scored alike on both sides, so that a difference may be the judge's: udcg. udcg: , , utility"
        in said
    )
    assert "other, , utility" in said
    assert "Scores that failed: 0 before, 40 after." in said


def test_sides_that_differ_in_k_are_said_and_a_score_file_has_none(tmp_path):
    a = scored_store(tmp_path / "a.db", side(0))
    write_scores(side(0), tmp_path / "b.jsonl")
    assert "K is" not in ragguard("compare", a, tmp_path / "b.jsonl").output
    more = [*side(0), scored(40, 0.5)]
    for item in more:
        item.run.steps[0].k = 3
    more[40].run.steps[0].k = 50  # its question is not compared
    c = scored_store(tmp_path / "c.db", more)
    said = " ".join(ragguard("compare", a, c).output.split())
    assert (
        "K is 1.0 before and 3.0 after: on 40 of 40 questions with another K these are not compared: udcg."
        in said
    )
    done = ragguard("compare", a, c, "--fail-if", "udcg < 0", code=2)
    assert "K differs in every question" in " ".join(done.output.split())


def test_a_gate_fails_where_its_condition_holds(tmp_path):
    a, b = scored_store(tmp_path / "a.db", side(0)), scored_store(tmp_path / "b.db", side(-0.05))
    ragguard("compare", a, b, "--fail-if", "udcg < -0.02", code=1)
    ragguard("compare", a, b, "--fail-if", "udcg < -0.2", code=0)
    for wrong in ("ndcg < 0", "nonsense"):
        done = ragguard("compare", a, b, "--fail-if", wrong, code=2)
        assert "fail-if" in done.output


def test_bounds_on_a_metric_beside_the_primary_ones_show_it_and_each_its_difference(harmed_sides, tmp_path):
    conditions = ("--fail-if", "harm > 0.5", "--fail-if", "harm > 0.3")
    words = ("compare", *harmed_sides, *conditions, "--markdown", tmp_path / "c.md")
    done = ragguard(*words, code=1)
    said, comment = " ".join(done.output.split()), (tmp_path / "c.md").read_text()
    assert "harm ↓" in said
    assert "More metrics" not in said
    for shown in (said, comment):
        assert "passed: harm > 0.5 does not hold; the difference is +0.4 (+0.400 … +0.400)" in shown
        assert "FAILED: harm > 0.3; the difference is +0.4" in shown
    assert "| harm ↓ | +0.400 (+0.400 … +0.400) | worse | 0.000 | 0.100 | 0.500 |" in comment
    gates = json.loads(ragguard(*words, "--json").output)["gates"]
    assert [(gate["condition"], gate["passed"]) for gate in gates] == [
        ("harm > 0.5", True),
        ("harm > 0.3", False),
    ]
    assert gates[0]["difference"] == pytest.approx(0.4)


@pytest.mark.parametrize("how", ["failed", "absent"])
def test_a_gate_that_rests_on_a_part_of_the_questions_warns(tmp_path, how):
    after = side(0)
    for item in after[8:]:
        item.scores = []
        item.failures.append(Failure("utility", "BudgetExceeded", "no tokens left", False, item.run.id))
    write_scores(side(0), tmp_path / "a.jsonl")
    write_scores(after if how == "failed" else after[:8], tmp_path / "b.jsonl")
    words = "compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--fail-if", "udcg < -0.02"
    done = ragguard(*words, code=1)
    assert "32 questions have no udcg on the new side" in " ".join(done.output.split())
    ragguard(*words, "--allow-unscored", code=0)
    assert "WARNING: --fail-if: udcg was compared on 8 of the 40 questions" in " ".join(done.output.split())
    assert "compared on 8 of the 40" in json.loads(ragguard(*words, "--json").output)["fail_if_remarks"][0]


def test_runs_with_time_ordered_ids_are_told_apart_and_found_by_the_part_that_is_shown(tmp_path):
    items = [scored(number, 0.5) for number in range(25)]
    for number, item in enumerate(items):
        item.run.id = f"01932b4e-77a1-7000-8{number:03d}-{number * 7919:012x}"
        item.scores = [replace(score, run_id=item.run.id) for score in item.scores]
    store = scored_store(tmp_path / "ordered.db", items)
    listed = ragguard("report", store, "--most", 10).output
    shown = {line.split()[-1] for line in listed.splitlines() if "Who is number" in line}
    assert len(shown) == 10
    assert "… and 15 more; all of them: --most 25" in listed
    for part in shown:
        done = ragguard("report", store, "--run", part)
        assert "Who is number" in done.output, done.output
    done = ragguard("report", store, "--run", "01932b4e", code=2)
    assert "it fits 01932b4e" in done.output


def test_a_run_without_a_question_or_a_retrieval_is_shown_as_such(tmp_path):
    store = scored_store(tmp_path / "bare.db", [ScoredRun(Run("bare", "", ended_ns=1), [])])
    assert "(no question)" in ragguard("report", store).output
    done = ragguard("report", store, "--run", "bare")
    assert "(no question)" in done.output
    assert "run bare: no retrieval was captured" in done.output


def test_a_list_begins_with_the_most_misled_where_any_is(tmp_path):
    misled = scored(2, 0.5)
    misled.scores = [
        *misled.scores,
        Score("utility", -0.9, "passage", "r2", misled.run.steps[0].id, position=1),
    ]
    listed = ragguard(
        "report", scored_store(tmp_path / "misled.db", [scored(1, 0.5), misled, scored(3, 0.5)])
    ).output
    assert "3 runs, what needs a person first" in listed
    assert listed.index("number 2?") < min(listed.index("number 1?"), listed.index("number 3?"))


def test_answers_that_words_leave_open_are_said_with_the_way_out(tmp_path):
    answers = ["Captain Berg"] * 6 + ["Captain Bo"] * 4
    for name, context in (("a", "Mills have leaders."), ("b", "Ada Berg leads.")):
        rows = [f"Who leads mill {at}?,{context},{answer},Captain Berg" for at, answer in enumerate(answers)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["question,contexts,answer,reference", *rows]))
        words = ("score", tmp_path / f"{name}.csv", "-e", "nano", "--scorers", "words")
        ragguard(*words, "-s", tmp_path / f"{name}.db")
    said = " ".join(ragguard("compare", tmp_path / "a.db", tmp_path / "b.db").output.split())
    assert (
        "answer_correct is compared on 6 of 10 questions: words do not decide the others, or these have no "
        "short reference; `ragguard score … --scorers coverage` asks a judge." in said
    ), said
