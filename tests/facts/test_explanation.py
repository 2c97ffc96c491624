"""The explanation of a run in words, case by case, and against nano's world, where the truth is known."""

import asyncio
from dataclasses import replace

import pytest

from ragguard import RagGuard, world
from ragguard.facts.causes import CAUSES
from ragguard.facts.explanation import explain
from ragguard.records import CUT_PASSAGES, Decision, Dropped, Passage, RetrievalStep, Run, Score

QUESTION = "Where was the founder of Zantek Foods born?"
FOUNDER = Passage("Ada Berg founded Zantek Foods.")
BIRTH = Passage("Ada Berg was born in East Dundale.")
FALSE = Passage("Records show that Ada Berg was born in West Ashwick.")
IDLE = Passage("Lemons are yellow.")


def run_of(first, second, answer="West Ashwick", references=("East Dundale",), **more):
    steps = [
        RetrievalStep("a", "r", 0, 0, "Who founded Zantek Foods?", first, list(first)),
        RetrievalStep("b", "r", 1, 1, "Where was Ada Berg born?", second, list(second)),
    ]
    return Run("r", QUESTION, list(references) or None, answer, steps, **more)


def scores_of(run, verdict="wrong", gains=(0.0, 0.0), losses=None, source="gold"):
    """Every true passage helps, each false or idle one does little."""
    helpful = {FOUNDER.text, BIRTH.text}
    found = []
    if verdict:
        found.append(Score("answer_correct", float(verdict == "correct"), "run", "r", label=verdict))
    about = {"stderr": 0.1, "reference_source": source}
    found.append(Score("delta_seper_total", sum(gains), "run", "r", **about))
    for step, gain, loss in zip(run.steps, gains, losses or (None, None), strict=True):
        found.append(Score("delta_seper", gain, "step", "r", step.id, **about))
        if loss is not None:
            found += [
                Score("credit", sum(gains) / 2, "step", "r", step.id, **about),
                Score("loss_without", loss, "step", "r", step.id, **about),
            ]
        found += [
            Score("utility", 0.9 if one.text in helpful else -0.05, "passage", "r", step.id, position=rank)
            for rank, one in enumerate(step.candidates, 1)
        ]
    return found


@pytest.mark.parametrize(
    ("answer", "reference", "passage", "sentence"),
    [
        ("Lea Simm did not win.", "Lea Simm", "Lea Simm won.",
         "The answer “Lea Simm did not win.” is in no passage that was read."),
        ("Ines Ruh wrote it, not Pavel Horn.", "Pavel Horn", "Pavel Horn wrote it, not Ines Ruh.",
         "The answer “Ines Ruh” is in passage 1.1."),
        ("It has 1250 seats.", "1,250", "The hall has 1,250 seats.", "The answer “1250” is in passage 1.1."),
    ],
)  # fmt: skip
def test_an_answer_is_quoted_as_it_spells_itself_and_without_what_it_denies(
    answer, reference, passage, sentence
):
    run = run_of([Passage(passage)], [IDLE], answer, references=[reference])
    assert explain(run, scores_of(run, verdict="")).text.startswith(sentence)


def test_a_day_of_a_date_does_not_state_the_same_number_of_something_else():
    charge, date = Passage("The charge is 31 pence."), Passage("It changes on 31 March 2026.")
    run = run_of([charge, date], [IDLE], "Each day costs 31 of them.", references=())
    assert explain(run, scores_of(run, verdict="")).text.startswith("The answer “31” is in passage 1.1.")
    run = run_of([charge, date], [IDLE], "It was 31 March then.", references=())
    assert "1.2" in explain(run, scores_of(run, verdict="")).text


def test_a_sentence_names_no_judge_where_none_was_asked():
    run = run_of([IDLE], [BIRTH], "East Dundale")
    score = Score("answer_correct", 0.5, "run", "r", label="correct, unsupported", scorer="words")
    assert explain(run, [score]).text == "Right: “East Dundale” is in passage 2.1."


def test_an_answer_that_words_support_in_another_spelling_is_not_said_to_be_in_no_passage():
    run = run_of(
        [IDLE], [Passage("Iver repairs clocks.")], "He repairs clocks.", references=["repairing clocks"]
    )
    score = Score("answer_correct", 1.0, "run", "r", label="correct", scorer="words")
    assert explain(run, [score]).text == "Judged right."


@pytest.mark.parametrize(
    ("run", "verdict", "cause", "sentence"),
    [
        (
            run_of([FOUNDER], [IDLE, BIRTH], "East Dundale"), "correct", "right",
            "Right: “East Dundale” is in passage 2.2.",
        ),
        (
            run_of([FOUNDER], [IDLE, BIRTH], "eastwards"), "correct", "right",
            "Judged right: the reference “East Dundale” is in passage 2.2.",
        ),
        (
            run_of([FOUNDER], [FALSE, BIRTH], "Ursula was born in East Dundale, and not in West Ashwick."),
            "correct", "right", "Judged right: “East Dundale” is in passage 2.2.",
        ),
        (
            run_of([FOUNDER], [FALSE, BIRTH], "Ursula was born in East Dundale, and not in West Ashwick.",
                   references=["Eastville", "East Dundale"]),
            "", "", "The answer “East Dundale” is in passage 2.2.",
        ),
        (
            run_of([FOUNDER], [IDLE], "eastwards"), "correct", "right",
            "Judged right: “eastwards” is in no passage that was read.",
        ),
        (
            run_of([IDLE], [IDLE], "East Dundale"), "correct, unsupported", "unsupported",
            "Right, but no passage that was read supports “East Dundale”.",
        ),
        (
            run_of([IDLE], [BIRTH], "East Dundale"), "correct, unsupported", "unsupported",
            "Right: “East Dundale” is in passage 2.1, though the judge calls no passage that was read relevant.",
        ),
        (
            run_of([FOUNDER], [BIRTH], "Born in East Dundale, I think."), "wrong", "",
            "Judged wrong, though the answer has the words of the reference “East Dundale”.",
        ),
        (run_of([], []), "wrong", "nothing_read", "Wrong: no passage was retrieved."),
        (
            run_of([FOUNDER], [IDLE]), "wrong", "not_found",
            "Wrong: the reference “East Dundale” is in no passage that was read. "
            "Hop 2 found nothing that answers its query.",
        ),
        (
            run_of([FOUNDER], [IDLE], "NO-RESPONSE"), "abstained", "not_found",
            "Abstained: the reference “East Dundale” is in no passage that was read. "
            "Hop 2 found nothing that answers its query.",
        ),
        (
            run_of([FOUNDER], [FALSE]), "wrong", "misled",
            "Wrong: “West Ashwick” is in passage 2.1, the reference “East Dundale” in none that was read.",
        ),
        (
            run_of([IDLE], [FALSE]), "wrong", "misled",
            "Wrong: “West Ashwick” is in passage 2.1, the reference “East Dundale” in none that was read. "
            "Hop 1 found nothing that answers its query.",
        ),
        (
            run_of([FOUNDER], [BIRTH, FALSE]), "wrong", "contested",
            "Wrong: “West Ashwick” is in passage 2.2, the reference “East Dundale” in 2.1.",
        ),
        (
            run_of([IDLE], [BIRTH]), "wrong", "missing_hop",
            "Wrong: the reference “East Dundale” is in passage 2.1, but hop 1 found nothing that answers its "
            "query.",
        ),
        (
            run_of([FOUNDER], [BIRTH]), "wrong", "not_used",
            "Wrong, though the reference “East Dundale” is in passage 2.1.",
        ),
        (
            run_of([FOUNDER], [BIRTH], "I don't know."), "abstained", "needless_abstention",
            "Abstained, though the reference “East Dundale” is in passage 2.1.",
        ),
        (
            run_of([FOUNDER], [BIRTH], references=()), "", "",
            "The answer “West Ashwick” is in no passage that was read.",
        ),
        (
            run_of([FOUNDER], [FALSE], references=["word " * 40]), "wrong", "",
            "Wrong: “West Ashwick” is in passage 2.1.",
        ),
        (run_of([FOUNDER], [FALSE], None, references=()), "", "", ""),
        (run_of([FOUNDER], [FALSE], "I don't know.", references=()), "", "", ""),
        (
            run_of([FOUNDER], [BIRTH, FALSE], "As far as I can see, she was born in the town of West Ashwick."),
            "wrong", "contested",
            "Wrong: “West Ashwick” is in passage 2.2, the reference “East Dundale” in 2.1.",
        ),
        (
            run_of([FOUNDER], [BIRTH], "As far as the documents say, Ada Berg was born somewhere in the north."),
            "wrong", "not_used", "Wrong, though the reference “East Dundale” is in passage 2.1.",
        ),
        (run_of([FOUNDER], [FALSE], "No", references=["Yes"]), "wrong", "", ""),
    ],
)  # fmt: skip
def test_each_cause_has_its_sentence(run, verdict, cause, sentence):
    found = explain(run, [score for score in scores_of(run, verdict) if score.name != "delta_seper"])
    told = [one for one in found.sentences if one != "Hop 1 led to hop 2."]
    assert (found.cause, " ".join(told)) == (cause, sentence)


@pytest.mark.parametrize(("utility", "stderr"), [(0.9, 0.0), (0.9, 0.5), (0.0, 0.0), (-0.9, 0.0)])
def test_a_passage_with_the_wrong_answer_misled_whatever_the_judge_says_of_it(utility, stderr):
    run = run_of([FOUNDER], [FALSE])
    scores = [
        replace(score, value=utility, stderr=stderr) if score.name == "utility" else score
        for score in scores_of(run)
    ]
    assert explain(run, scores).cause == "misled"
    assert explain(run, scores).blamed == {(2, 1)}


def test_by_words_a_passage_with_the_wrong_answer_misled_if_nobody_was_asked_about_it():
    run = run_of([FOUNDER], [IDLE, FALSE])
    verdict = Score("answer_correct", 0.0, "run", "r", label="wrong", scorer="words")
    found = explain(run, [verdict])
    assert (found.cause, found.blamed) == ("misled", {(2, 2)})
    assert found.sentences[0] == (
        "Wrong: “West Ashwick” is in passage 2.2, the reference “East Dundale” in none that was read."
    )
    judged = [one for one in scores_of(run) if one.position == 1]
    assert explain(run, [verdict, *judged]).cause == "misled"
    assert explain(run_of([FOUNDER], [IDLE]), [verdict]).cause == "not_found"


def test_the_only_hop_that_found_what_misled_is_no_hop_that_is_missing():
    """In plain RAG the query is the question, so that the judge sees the references and calls the lie a distractor."""
    run = run_of([FALSE], [])
    del run.steps[1]
    run.steps[0].query = run.question
    scores = [
        Score("answer_correct", 0.0, "run", "r", label="wrong"),
        Score("utility", -0.9, "passage", "r", "a", position=1),
    ]
    assert explain(run, scores).cause == "misled"


def test_of_passages_that_were_not_captured_nothing_is_said():
    run = run_of([replace(IDLE, metadata={})], [])
    del run.steps[1]
    run.steps[0].passages[-1].metadata[CUT_PASSAGES] = "the first 1,000 of 3,000 passages"
    scores = [Score("answer_correct", 0.0, "run", "r", label="wrong")]
    assert "in no passage" not in explain(run, scores).text
    assert explain(run, scores).cause == ""


def test_a_hop_that_found_the_reference_is_never_said_to_have_found_nothing():
    run = run_of([BIRTH], [])
    del run.steps[1]
    scores = [
        Score("answer_correct", 0.0, "run", "r", label="wrong"),
        Score("utility", -0.9, "passage", "r", "a", position=1),
    ]
    found = explain(run, scores)
    assert (found.cause, found.text) == (
        "not_used", "Wrong, though the reference “East Dundale” is in passage 1.1.",
    )  # fmt: skip
    assert found.stating == {(1, 1)}
    run = run_of([FOUNDER], [BIRTH])
    judged = [replace(score, value=-0.9) if score.step_id == "b" else score for score in scores_of(run)]
    assert explain(run, judged).cause == "not_used"


def test_a_reference_in_a_dropped_passage_is_laid_to_the_guard():
    run = run_of([FOUNDER], [FALSE])
    run.steps[1].candidates = [BIRTH, FALSE]
    assert explain(run, scores_of(run)).sentences[0] == (
        "Wrong: the reference “East Dundale” is in passage 2.1, which the model did not get. “West Ashwick” is "
        "in passage 2.2."
    )
    run.steps[1].decision = Decision([FALSE], [Dropped(BIRTH, 1, "utility")], "pruned")
    found = explain(run, scores_of(run))
    assert found.cause == "dropped"
    assert "passage 2.1, which the guard dropped." in found.text


@pytest.mark.parametrize(
    ("answer", "verdict", "second", "cause", "sentence"),
    [
        ("Ada Berg and potter", "correct", "potter", "right",
         "Right: “Ada Berg” is in passage 1.1, “potter” in 2.1."),
        ("potter / Ada Berg", "correct", "potter", "right",
         "Judged right: “potter” is in passage 2.1, “Ada Berg” in 1.1."),
        ("Ada Berg and barber", "wrong", "barber", "misled",
         "Wrong: “barber” is in passage 2.1, the part “potter” of the reference in none that was read."),
        ("Ada Berg; Bo Lund", "wrong", "friend of Bo Lund", "misled",
         "Wrong: “Bo Lund” is in passage 2.1, the part “potter” of the reference in none that was read."),
        ("I don't know.", "abstained", "barber", "not_found",
         "Abstained: the part “potter” of the reference is in no passage that was read."),
        ("I don't know.", "abstained", "potter", "needless_abstention",
         "Abstained, though the reference “Ada Berg and potter” is in passages 1.1 and 2.1."),
        ("potter and Ada Berg", "wrong", "potter", "",
         "Judged wrong, though the answer has the words of the reference “Ada Berg and potter”."),
        ("Ada Berg and barber", "", "barber", "",
         "The answer “Ada Berg” is in passage 1.1, “barber” in 2.1, the part “potter” of the reference in none that "
         "was read."),
    ],
)  # fmt: skip
def test_references_and_answers_of_two_parts_are_found_part_by_part(answer, verdict, second, cause, sentence):
    run = run_of(
        [FOUNDER], [Passage(f"By profession the man is a {second}.")], answer, ["Ada Berg and potter"]
    )
    run.question, run.steps[1].query = (
        "Who founded Zantek Foods, and what is his profession?",
        "his profession",
    )
    scores = [Score("answer_correct", 0.0, "run", "r", label=verdict, scorer="words")] if verdict else []
    found = explain(run, scores)
    assert (found.cause, found.sentences[0]) == (cause, sentence)
    assert found.blamed == ({(2, 1)} if cause == "misled" else set())


def test_a_passage_that_has_the_reference_about_something_else_does_not_stand_for_a_dropped_one():
    run = run_of([Passage("Zantek Foods is in East Dundale.")], [IDLE], "I don't know.")
    run.steps[1].candidates = [BIRTH, IDLE]
    verdict = Score("answer_correct", 0.0, "run", "r", label="abstained", scorer="words")
    found = explain(run, [verdict])
    assert (found.cause, found.sentences[0]) == (
        "dropped",
        "Abstained: the reference “East Dundale” is in passage 2.1, which the model did not get. Passage 1.1, which "
        "it got, has the words, but not “Ada Berg”.",
    )
    helps = Score("utility", 0.9, "passage", "r", "a", position=1)
    assert explain(run, [verdict, helps]).cause == "needless_abstention"
    run.steps[0].passages[0] = run.steps[0].candidates[0] = Passage("East Dundale is the home of Ada Berg.")
    assert explain(run, [verdict]).cause == "needless_abstention"


@pytest.mark.parametrize(
    ("gains", "losses", "more", "sentence"),
    [
        (
            (0.02, 0.93), (0.93, 0.93), {},
            "Hops 1 and 2 were both needed (without hop 1: -0.93, without hop 2: -0.93); hop 1 led to hop 2.",
        ),
        (
            (0.02, 0.93), None, {},
            "Hop 2 raised the belief when it came (+0.93 ± 0.10); hop 1 led to hop 2, which paid.",
        ),
        (
            (0.0, -0.4), None, {},
            "Hop 2 lowered the belief (-0.40 ± 0.10); hop 1 added nothing measurable; hop 1 led to hop 2.",
        ),
        (
            (0.1, -0.1), None, {},
            "No hop moved the belief measurably; by words, hop 2 brought the reference; hop 1 led to hop 2.",
        ),
        (
            (0.1, 0.9), None, {"source": "answer"},
            "Hop 2 raised the belief in this answer when it came (+0.90 ± 0.10); hop 1 led to hop 2, which paid.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_about_hops_is_by_the_scores_that_count(gains, losses, more, sentence):
    run = run_of([FOUNDER], [BIRTH])
    assert explain(run, scores_of(run, "", gains, losses, **more)).sentences[-1] == sentence


def test_a_run_without_beliefs_is_not_said_to_have_moved_none():
    run = run_of([FOUNDER], [BIRTH])
    scores = [one for one in scores_of(run, "wrong") if one.name == "utility"]
    assert "belief" not in explain(run, scores).text


def test_belief_by_likelihood_is_said_as_well():
    run = run_of([FOUNDER], [BIRTH], "East Dundale")
    scores = scores_of(run, "correct", (0.02, 0.93), (0.93, 0.93))
    likely = [replace(one, name=one.name.replace("seper", "likelihood"), stderr=None) for one in scores]
    assert "Hops 1 and 2 were both needed" in explain(run, likely).text
    small = [replace(one, stderr=0.0, value=one.value / 100) for one in likely if one.level != "passage"]
    assert "No hop moved the belief measurably" in explain(run, small).text
    one = [replace(score, stderr=0.0) for score in likely if score.name not in ("credit", "loss_without")]
    assert "(+0.93)" in explain(run, one).text
    assert "±" not in explain(run, one).text


def test_passages_that_turn_a_sure_model_overturn_its_answer():
    run = run_of([FOUNDER], [FALSE])
    scores = scores_of(run, "wrong", (0.0, -0.85))
    closed = Score("seper_closed_book", 0.93, "run", "r", stderr=0.05, reference_source="gold")
    found = explain(run, [*scores, closed])
    assert found.cause == "overturned"
    assert "Without passages the model believed in the reference (0.93)." in found.text
    for unsure in (replace(closed, value=0.6), replace(closed, stderr=0.3)):
        assert explain(run, [*scores, unsure]).cause != "overturned"
    support = [replace(one, reference_source="answer") for one in (*scores, closed)]
    assert explain(run, support).cause != "overturned"
    right = [replace(one, label="correct") if one.name == "answer_correct" else one for one in scores]
    assert explain(run, [*right, closed]).cause == "right"


def test_what_led_to_a_query_stands_in_the_data():
    run = run_of([FOUNDER], [BIRTH])
    assert explain(run, []).as_dict()["led_by"] == [
        {"hop": 2, "words": "Ada Berg", "from": [{"hop": 1, "rank": 1}]}
    ]


SHARED = [RetrievalStep(f"s{at}", "r", at, at, "the same", [FOUNDER, BIRTH]) for at in range(50)]


@pytest.mark.parametrize("verdict", ["", "correct", "wrong", "abstained"])
@pytest.mark.parametrize(
    "run",
    [
        Run("r", "", None, None),
        Run("r", QUESTION, [], ""),
        Run("r", QUESTION, ["East Dundale"], None, [RetrievalStep("a", "r", status="interrupted")], status="abandoned"),
        Run("r", QUESTION, ["East Dundale"], "x", [RetrievalStep("a", "r", 0, 0, "", [Passage("", id="image")])]),
        Run("r", QUESTION, ["East Dundale"], "East Dundale", SHARED[:1]),
        Run("r", QUESTION, ["East Dundale"], "West Ashwick", SHARED),
    ],
)  # fmt: skip
def test_odd_runs_have_defined_words(run, verdict):
    found = explain(run, [Score("answer_correct", 0.0, "run", "r", label=verdict)] if verdict else [])
    assert "belief" not in found.text  # none was scored
    assert len(found.text) < 600
    assert found.cause in ("", *CAUSES)
    if not verdict or not run.references:
        assert found.cause in ("", "right", "unsupported", "nothing_read")


def test_words_are_compared_without_case_punctuation_and_in_scripts_without_spaces():
    run = run_of([FOUNDER], [Passage("Born in EAST-DUNDALE? No: east dundale!")], "East Dundale.")
    assert "is in passage 2.1" in explain(run, scores_of(run, "correct")).text
    run = run_of([FOUNDER], [Passage("她出生于东京都。")], "东京", ["东京"])
    assert "“东京” is in passage 2.1" in explain(run, scores_of(run, "correct")).text
    run = run_of([FOUNDER], [Passage("Eastern Dundalesque")], "East Dundale", ["somewhere"])
    assert "no passage" in explain(run, scores_of(run, "correct")).text


def test_many_places_long_answers_and_control_characters_are_cut():
    run = run_of([BIRTH] * 9, [BIRTH] * 9, "East\x1b[31m Dundale")
    assert "\x1b" not in explain(run, scores_of(run, "correct")).text
    run.answer = "East Dundale"
    assert (
        explain(run, scores_of(run, "correct")).sentences[0].endswith("passages 1.1, 1.2, 1.3 and 15 more.")
    )
    run.answer = "a " + "word " * 500
    said = "Judged right: the reference “East Dundale” is in passages 1.1, 1.2, 1.3 and 15 more."
    assert explain(run, scores_of(run, "correct")).sentences[0] == said


def runs_with_known_causes(case, elsewhere):
    """Yields runs of a case whose cause is known by construction, each with the verdict on its answer."""
    false = next(one for one in case.of_kind("contradiction") if one.metadata["hop"] == 2)
    lie = str(false.metadata["object"])
    yield "right", "correct", world.make_run(case)
    yield "misled", "wrong", world.make_run(case, mislead=(2,))
    yield "not_found", "wrong", world.make_run(case, miss=(2,), answer=elsewhere)
    yield "not_found", "abstained", world.make_run(case, miss=(1, 2), answer="NO-RESPONSE")
    yield "missing_hop", "wrong", world.make_run(case, miss=(1,), answer=elsewhere)
    yield "not_used", "wrong", world.make_run(case, answer=elsewhere)
    yield "needless_abstention", "abstained", world.make_run(case, answer="NO-RESPONSE")
    contested = world.make_run(case, answer=lie)
    contested.steps[1].passages.append(false)
    contested.steps[1].candidates.append(false)
    yield "contested", "wrong", contested
    dropped = world.make_run(case, answer=elsewhere)
    gold = case.gold[1]
    dropped.steps[1].passages.remove(gold)
    position = dropped.steps[1].candidates.index(gold) + 1
    dropped.steps[1].decision = Decision(
        dropped.steps[1].passages, [Dropped(gold, position, "utility")], "pruned"
    )
    yield "dropped", "wrong", dropped
    yield "overturned", "wrong", world.make_run(case, mislead=(2,))


def test_causes_in_nanos_world_are_the_true_ones():
    cases = world.cases(12, seed=5, hops=2)
    table = {}
    with RagGuard("nano", store=None, scorers=["utility"]) as rg:
        for number, case in enumerate(cases):
            elsewhere = f"Nowhere {number}"
            for cause, verdict, run in runs_with_known_causes(case, elsewhere):
                judged = [Score("answer_correct", float(verdict == "correct"), "run", run.id, label=verdict)]
                if cause == "overturned":
                    judged += [
                        Score(name, value, "run", run.id, stderr=0.05, reference_source="gold")
                        for name, value in (("seper_closed_book", 0.95), ("delta_seper_total", -0.9))
                    ]
                found = explain(run, [*asyncio.run(rg.score(run)), *judged])
                table.setdefault(cause, []).append(found.cause)
                if cause in ("misled", "contested"):
                    (source,) = [
                        (hop, rank)
                        for hop, step in enumerate(run.steps, 1)
                        for rank, passage in enumerate(step.candidates, 1)
                        if passage.metadata["kind"] == "contradiction"
                    ]
                    assert source in found.sources
    named = sum(found.count(cause) for cause, found in table.items())
    assert named >= 0.95 * sum(map(len, table.values())) >= 95
    rates = {cause: found.count(cause) / len(found) for cause, found in table.items()}
    # Where nano's judge errs about a passage, a neighbouring cause is named.
    assert min(rates.values()) >= 0.75, table


def test_by_words_causes_are_the_true_ones_but_for_what_only_a_judge_or_a_belief_tells():
    by_words = {"missing_hop": "not_used", "overturned": "misled"}
    for number, case in enumerate(world.cases(10, seed=5, hops=2)):
        for cause, verdict, run in runs_with_known_causes(case, f"Nowhere {number}"):
            score = Score("answer_correct", 0.0, "run", run.id, label=verdict, scorer="words")
            assert explain(run, [score]).cause == by_words.get(cause, cause)


def test_two_hop_chains_in_nanos_world_needed_both_hops_and_the_first_led_to_the_second():
    both = led = 0
    cases = world.cases(10, seed=11, hops=2)
    with RagGuard("nano", store=None, scorers=["belief", "utility"]) as rg:
        for case in cases:
            run = world.make_run(case)
            found = explain(run, asyncio.run(rg.score(run)))
            both += "Hops 1 and 2 were both needed" in found.text
            led += [(hop, words, {at for at, _ in places}) for hop, words, places in found.leads] == [
                (2, case.bridge, {1})
            ]
    assert led == len(cases)
    assert both >= 5  # the others nano knows by heart, or does not read
