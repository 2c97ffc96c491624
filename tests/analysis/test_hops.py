"""The table of hops: everything that was asked for is on it."""

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from ragguard.analysis.hops import hop_table
from ragguard.facts.run_view import RunView
from ragguard.records import (
    K_ERROR,
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    Score,
)
from ragguard.scorers.answers import SAME_WORDS


def shown(run, scores, failures=()):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(hop_table(RunView(run, scores, failures)))
    console.file.close()
    return "\n".join(map(str.rstrip, console.export_text().splitlines()))


def guarded():
    passages = [Passage("It was founded in [bold]Oslo[/bold]."), Passage("Lemons are yellow.")]
    step = RetrievalStep(
        id="s", run_id="r", query="where [red]was it?", candidates=passages, passages=passages[:1]
    )
    step.decision = Decision(passages[:1], [Dropped(passages[1], 2, "utility -0.80 < -0.20", -0.8)], "pruned")
    return Run("r", "Where was it founded?", ["Oslo"], "Oslo", [step])


def test_query_passages_scores_and_what_was_dropped_are_shown():
    scores = [
        Score("delta_seper", 0.4, "step", "r", "s", stderr=0.05, reference_source="gold"),
        Score("udcg", 0.61, "step", "r", "s"),
        Score("udcg", 0.52, "step", "r", "s", stage="candidates"),
        Score("coverage", 0.5, "step", "r", "s"),
        Score("utility", 0.9, "passage", "r", "s", position=1),
        Score("answer_correct", 1.0, "run", "r", label="correct"),
    ]
    text = shown(guarded(), scores)
    for expected in (
        "where [red]was it?", "[bold]Oslo[/bold]", "ΔSePer +0.40 ± 0.05", "UDCG 0.610 (was 0.520)",
        "coverage 0.50", "+0.90", "helps", "dropped: -0.80 < -0.20", "(correct)",
    ):  # fmt: skip
        assert expected in text, expected


@pytest.mark.parametrize(
    ("engine", "how", "said"),
    [
        ("nano:1", SAME_WORDS, "(correct)"),
        ("nano:1", "they follow", "(correct, as nano judges, which errs)"),
        ("a model", "they follow", "(correct, as a model judges)"),
    ],
)
def test_a_verdict_says_whose_judgement_it_is_where_the_words_do_not_tell(engine, how, said):
    judged = Score("answer_correct", 1.0, "run", "r", label="correct", engine=engine, explanation=how)
    assert said in shown(guarded(), [judged])


def test_a_passage_that_misleads_by_its_utility_and_has_the_reference_is_called_doubtful():
    found = Passage("The tyre needs 2.4 bar.")
    step = RetrievalStep("s", "r", 0, 0, "Which pressure?", [found], [found])
    run = Run("r", "Which pressure?", ["2.4 bar"], "2.4 bar", [step])
    text = shown(run, [Score("utility", -0.9, "passage", "r", "s", position=1)])
    assert "misleads? has the reference" in text
    run.references = ["3 bar"]
    assert "misleads? has" not in shown(run, [Score("utility", -0.9, "passage", "r", "s", position=1)])


def test_passages_that_contradict_each_other_are_named():
    said = Score("contested", 0.5, "step", "r", "s", explanation="1.1 “Oslo” against 1.2 “[b]Bergen”")
    assert "contested: 1.1 “Oslo” against 1.2 “[b]Bergen”" in shown(guarded(), [said])
    assert "contested" not in shown(guarded(), [replace(said, value=0.0, explanation="")])


def test_k_stands_before_the_scores():
    assert "K = 2, 1 kept   UDCG 0.610" in shown(guarded(), [Score("udcg", 0.61, "step", "r", "s")])
    run = guarded()
    run.steps[0].k = 5
    assert "K = 5, 1 kept   not scored" in shown(run, [])
    run.steps[0].decision, run.steps[0].passages, run.steps[0].k = None, run.steps[0].candidates, None
    assert "K = 2   not scored" in shown(run, [])
    run.steps[0].k = 5
    assert "K = 5, 2 found   not scored" in shown(run, [])
    run.steps[0].metadata = {K_ERROR: "k: got 1"}
    assert "K = " not in shown(run, [])


def test_scores_without_a_column_are_shown_by_name():
    scores = [
        Score("grade", 4.0, "passage", "r", "s", position=1, scorer="grades"),
        Score("precision_at_grade", 0.25, "step", "r", "s", stage="candidates", scorer="grades"),
        Score("precision_at_grade", 0.5, "step", "r", "s", scorer="grades"),
        Score("t", -0.125, "step", "r", "s", scorer="grades"),
    ]
    text = shown(guarded(), scores)
    assert "K = 2, 1 kept   precision_at_grade 0.50   t -0.13" in text
    assert "grade 4" in text
    assert "not scored" not in text
    assert "not judged" not in text.split("grade 4")[0]
    text = shown(
        guarded(), [*scores, Score("udcg", 0.6, "step", "r", "s"), Score("density", 1.0, "step", "r", "s")]
    )
    assert "UDCG 0.600   precision_at_grade 0.50   t -0.13" in text
    assert "density" not in text


def test_a_utility_within_two_standard_errors_of_zero_is_unclear():
    for value, stderr, verdict in (
        (-0.3, 0.16, "unclear"), (0.3, 0.16, "unclear"), (-0.3, 0.14, "misleads"), (0.1, 0.16, "does little"),
    ):  # fmt: skip
        said = Score("utility", value, "passage", "r", "s", position=1, stderr=stderr)
        assert f"{verdict}\n" in shown(guarded(), [said])


def test_a_passage_with_ratings_alone_is_judged():
    ratings = [
        Score("answerability", value, "passage", "r", "s", position=1, sub_question=asked)
        for asked, value in enumerate((2.0, 3.0, 5.0))
    ]
    text = shown(guarded(), [*ratings, Score("coverage", 0.5, "step", "r", "s")])
    assert "coverage 0.50" in text
    assert "answers 2 of 3" in text
    assert "not judged" not in text


def test_why_a_number_is_missing_is_told_once_whatever_times_it_names():
    failures = [
        Failure("belief", "LowLabelMass", "delta_seper: [i]too little[/i]\nmass in 1.5 s", step_id="s"),
        Failure("belief", "LowLabelMass", "delta_seper: [i]too little[/i]\nmass in 20 s", step_id="s"),
        Failure("grades", "CapExceeded", "response_grade: [i]too long[/i]"),
    ]
    text = shown(guarded(), [], failures)
    assert text.count("not scored: delta_seper: [i]too little[/i] mass") == 1
    assert text.index("[i]too long[/i]") < text.index("hop 1")


def test_passage_cut_without_a_guard_is_shown_as_not_read():
    run = guarded()
    run.steps[0].decision = None
    assert "   not read\n" in shown(run, [Score("utility", 0.9, "passage", "r", "s", position=2)])
    run.steps[0].passages = [
        Passage("It was founded in [bold]Oslo[/bold]. (shortened)"),
        Passage("Lemons are yellow."),
    ]
    run.steps[0].candidates = run.steps[0].passages[:]
    assert "   cut\n" not in shown(run, [])


def test_wide_letters_and_long_verdicts_keep_the_columns():
    run = guarded()
    run.steps[0].candidates = [Passage("東京" * 200), run.steps[0].candidates[1]]
    run.steps[0].decision.dropped[
        0
    ].reason = "it says the contrary of what the other passages say of the same firm"
    text = shown(run, [])
    assert max(cell_len(line) for line in text.splitlines()) <= 160
    assert "…" in text
    assert "same firm" in " ".join(text.split())


def test_passage_that_the_model_read_is_shown_where_it_is_no_candidate():
    found = [Passage("A header. Ada founded it.", "d1"), Passage("Lemons.", "d2")]
    read = [Passage("Ada founded it.", "d1"), Passage("Source 2: sour.")]
    run = Run("r", "who?", steps=[RetrievalStep("s", "r", query="who?", candidates=found, passages=read)])
    scores = [
        Score("utility", value, "passage", "r", "s", position=position)
        for position, value in enumerate((0.1, 0.0, 0.9, -0.5), 1)
    ]
    lines = shown(run, scores).splitlines()
    (header,) = [line for line in lines if "A header." in line]
    assert "read as 3" in header
    assert "not read" in next(line for line in lines if "Lemons." in line)
    (as_read,) = [line for line in lines if " 3 " in line and "Ada founded it." in line]
    assert "+0.90" in as_read
    assert "-0.50" in next(line for line in lines if "Source 2" in line)


def test_a_hop_or_a_run_that_failed_says_of_what():
    steps = [
        RetrievalStep("a", "r", 0, query="one", status="error", error="ConnectionError: vector db down"),
        RetrievalStep("b", "r", 1, query="two"),
    ]
    run = Run("r", "who?", None, None, steps, "error", {"error": "RuntimeError: llm [b]down[/b]"})
    text = shown(run, [])
    assert "error: ConnectionError: vector db down" in text
    assert "nothing was found" in text
    assert "error: RuntimeError: llm [b]down[/b]" in text.split("hop 1")[0]


def test_a_hop_whose_delivery_is_unknown_says_that_all_candidates_count():
    found = [Passage("Ada founded it.", "d1"), Passage("Lemons.", "d2")]
    known = RetrievalStep("a", "r", 0, query="one", passages=found, candidates=found)
    unknown = replace(known, id="b", index=1, query="two", metadata={"ragguard.delivered": "unknown"})
    lines = shown(Run("r", "who?", steps=[known, unknown]), [])
    before, after = lines.split("hop 2")
    said = "what the model read is unknown: all 2 candidates count as read"
    assert (said in before, said in after) == (False, True)


def test_a_hop_of_which_the_model_got_nothing_says_so():
    found = [Passage("Ada founded it.", "d1")]
    run = Run("r", "who?", steps=[RetrievalStep("a", "r", query="one", candidates=found)])
    assert "the model read none of them" in shown(run, [])


@pytest.mark.parametrize(("utility", "colour"), [(-0.05, "90"), (0.05, "90"), (-0.5, "31"), (0.5, "32")])
def test_a_bar_has_colour_only_where_it_is_clear(utility, colour):
    console = Console(
        width=160, record=True, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    run = guarded()
    run.steps[0].decision = None
    console.print(hop_table(RunView(run, [Score("utility", utility, "passage", "r", "s", position=1)])))
    cells = round(abs(utility) * 6)
    (line,) = [line for line in console.export_text(styles=True).splitlines() if "It was founded" in line]
    assert f"\x1b[{colour}m{'█' * cells or ''}" in line
    assert ("\x1b[31m" in line or "\x1b[32m" in line) == (abs(utility) > 0.2)


def test_the_hop_says_whether_retriever_or_selection_lost_more():
    scores = [
        Score("proc", 0.3, "step", "r", "s", scorer="grades"),
        Score("pct_proc", 0.9, "step", "r", "s", scorer="grades"),
    ]
    assert "The retriever loses most: its candidates allow 0.30" in shown(guarded(), scores)
    assert "loses most" not in shown(guarded(), scores[:1])
