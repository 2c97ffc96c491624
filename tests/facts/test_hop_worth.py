"""One number for all hops of a run decides which hop paid, and a hop that led to a hop that paid has paid."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard import Passage, RetrievalStep, Run
from ragguard.analysis.wording import remarks_on_worth
from ragguard.facts.hop_sentence import JOINT_PAYS
from ragguard.facts.hop_worth import own_worth, worth_of_hops
from ragguard.facts.leads import led_from
from ragguard.facts.run_facts import facts_of
from ragguard.facts.run_view import RunView
from ragguard.facts.scores import CountedScores
from ragguard.records import Lead, LeadSource, Score


def score(name, step, value, source="gold", stderr=0.1):
    return Score(name, value, "step", "r", step_id=step, stderr=stderr, reference_source=source)


def steps(*ids, leads=()):
    """Steps, some led by others: pairs of a step and those of which one led to it."""
    led_by = {id: [] for id in ids}
    for step, *sources in leads:
        led_by[step].append(Lead("Words", [LeadSource(one, 1) for one in sources]))
    return [
        RetrievalStep(id, "r", at, at, f"query {at}", [Passage(f"text {at}")], led_by=led_by[id])
        for at, id in enumerate(ids)
    ]


def worth(scores, *leads):
    return worth_of_hops(scores, steps("a", "b", "c", leads=leads))


def test_credit_comes_before_what_a_hop_added_when_it_came():
    scores = [score(name, step, 0.5) for name in ("delta_seper", "credit") for step in ("a", "b")]
    assert {step: (one.name, one.value, one.stderr) for step, one in worth(scores).items()} == {
        "a": ("credit", 0.5, 0.1), "b": ("credit", 0.5, 0.1),
    }  # fmt: skip


def test_all_hops_of_a_run_have_the_same_number():
    scores = [score("delta_seper", "a", 0.1), score("delta_seper", "b", 0.2), score("credit", "a", 0.9)]
    assert {step: (one.name, one.value) for step, one in worth(scores).items()} == {
        "a": ("delta_seper", 0.1), "b": ("delta_seper", 0.2),
    }  # fmt: skip


def test_gold_comes_before_support_in_any_order():
    gold, support = score("credit", "a", 0.2), score("credit", "a", 0.8, "answer")
    assert worth([gold, support]) == worth([support, gold])
    assert worth([support, gold])["a"].value == 0.2
    assert worth([support])["a"].support


def test_without_a_deciding_score_there_is_no_worth():
    assert worth([]) == {}
    assert worth([score("seper", "a", 0.3)]) == {}
    assert worth([score("credit", "a", 0.3), score("delta_seper", "b", 0.3)]) == {}


def test_a_hop_paid_if_its_worth_is_more_than_its_error():
    def paid(name, value, stderr):
        return worth([score(name, "a", value, stderr=stderr)])["a"].paid

    assert paid("credit", 0.3, 0.1)
    assert not paid("credit", 0.15, 0.1)
    assert not paid("credit", 0.04, 0.0)
    assert not paid("credit", -0.5, 0.0)
    assert paid("joint_gain", 0.3, 0.0)
    assert not paid("joint_gain", 0.2, 0.0)


def test_a_hop_that_led_to_a_hop_that_paid_has_paid():
    scores = [score("credit", "a", -0.1), score("credit", "b", 0.0), score("credit", "c", 0.6)]
    found = worth(scores, ("b", "a"), ("c", "b"))
    assert [(one.value, one.through, one.paid) for one in found.values()] == [
        (0.6, "c", True), (0.6, "c", True), (0.6, "", True),
    ]  # fmt: skip
    assert [one.value for one in worth(scores, ("c", "a")).values()] == [0.6, 0.0, 0.6]


def test_only_the_answers_part_of_a_joint_gain_comes_from_the_hop_that_it_led_to():
    scores = [score("joint_gain", "a", 0.2), score("joint_gain", "b", 2.0)]
    scores += [score("reference_gain", "a", -0.3), score("reference_gain", "b", 1.5)]
    found = worth(scores, ("b", "a"))
    assert found["a"].question == 0.5
    assert found["a"].value == 2.0
    assert found["b"].value == 2.0
    assert found["b"].question == 0.5


def test_a_lead_that_nobody_can_tell_pays_nothing():
    scores = [score("credit", "a", 0.0), score("credit", "b", 0.0), score("credit", "c", 0.6)]
    assert [one.value for one in worth(scores, ("c", "a", "b")).values()] == [0.0, 0.0, 0.6]


def test_each_hop_whose_name_a_query_took_has_what_that_hop_gained():
    scores = [score("credit", "a", 0.0), score("credit", "b", 0.0), score("credit", "c", 0.6)]
    assert [one.through for one in worth(scores, ("c", "a"), ("c", "b")).values()] == ["c", "c", ""]


def test_the_hop_that_brought_the_reference_has_paid_and_so_has_the_hop_that_led_to_it():
    scores = [score("credit", "a", 0.0), score("credit", "b", -0.03), score("credit", "c", 0.01)]
    found = worth_of_hops(scores, steps("a", "b", "c", leads=[("b", "a")]), "b")
    assert [(one.value, one.paid, one.stated, one.through) for one in found.values()] == [
        (0.05, True, False, "b"), (0.05, True, True, ""), (0.01, False, False, ""),
    ]  # fmt: skip
    assert worth_of_hops(scores[:1], steps("a"), "a")["a"].value == 0.0, "of one hop only the belief tells"
    fell = [scores[0], score("credit", "b", -0.3)]
    assert worth_of_hops(fell, steps("a", "b"), "b")["b"].value == -0.3
    support = [score("credit", one, 0.0, "answer") for one in ("a", "b")]
    assert not any(one.paid for one in worth_of_hops(support, steps("a", "b"), "b").values())


def told(question="Which town?", references=("Oslo",), texts=("Ada Berg", "Ada Berg was born in Oslo.")):
    run = Run(question=question, references=[*references], steps=steps("a", "b", leads=[("b", "a")]))
    for step, text in zip(run.steps, texts, strict=True):
        step.passages = [Passage(text)]
    view = RunView(run, [score("credit", one, 0.0, stderr=None) for one in ("a", "b")])
    return [hop.worth.stated for hop in view.hops], view.explanation.text


@pytest.mark.parametrize(
    ("sampled", "question", "paid"),
    [
        (0.02, None, [False, False]),  # no clear change
        (-0.5, None, [False, False]),  # another change than the likelihood's
        (0.5, None, [True, True]),
        (0.02, 0.4, [True, False]),  # a hop may pay by the question
    ],
)
def test_no_hop_paid_if_the_belief_of_the_run_does_not_tell_which_did(sampled, question, paid):
    run = Run(question="Which town?", references=["Oslo"], steps=steps("a", "b", leads=[("b", "a")]))
    run.steps[1].passages = [Passage("Ada Berg was born in Oslo.")]
    scores = [score("credit", one, 0.2, stderr=None) for one in ("a", "b")]
    scores.append(Score("delta_seper_total", sampled, "run", "r", stderr=0.1, reference_source="gold"))
    if question:
        scores += [score("joint_gain", "a", question), score("joint_gain", "b", 0.0)]
        scores += [score("reference_gain", one, 0.0) for one in ("a", "b")]
    view = RunView(run, scores)
    assert [hop.worth.paid for hop in view.hops] == paid
    assert ("no clear change" in view.explanation.text) == (sampled == 0.02)
    assert ("brought the reference" in view.explanation.text) == (sampled != 0.5)


def test_the_reference_is_looked_for_in_what_was_read():
    stated, text = told()
    assert stated == [False, True]
    assert "hop 1 led to hop 2, which brought the reference" in text
    assert told(texts=("Oslo is a town.", "Ada Berg was born in Oslo."))[0] == [True, False]
    assert told(question="Was she born in Oslo?")[0] == [False, False]
    assert told(question="Oslo or Bergen?", references=("Oslo", "the capital"))[0] == [False, False]
    assert told(references=("yes",), texts=("", "yes"))[0] == [False, False]


def test_a_hop_that_led_to_a_hop_that_lowered_the_belief_gets_nothing_of_it():
    scores = [score("credit", "a", -0.5), score("credit", "b", -0.2)]
    assert [(one.value, one.lowered) for one in worth(scores, ("b", "a")).values()] == [
        (-0.5, True), (-0.2, True),
    ]  # fmt: skip


def test_a_hop_lowered_the_belief_by_the_answers_part_only():
    """Of a useless hop the question's part is below the usual one, which says nothing of the belief."""
    scores = [score("joint_gain", "a", -0.8), score("joint_gain", "b", -0.4)]
    scores += [score("reference_gain", "a", -0.1), score("reference_gain", "b", -0.5)]
    assert [one.lowered for one in worth(scores).values()] == [False, True]


def remarks(scores, texts=("Ada Berg", "Lemons", "Bergen")):
    run = Run(question="Where?", references=["Oslo"], steps=steps("a", "b", "c", leads=[("b", "a")]))
    for step, text in zip(run.steps, texts, strict=True):
        step.passages = [Passage(text)]
    return [" ".join(remarks_on_worth(hop, run.steps)) for hop in RunView(run, scores).hops]


def test_a_hop_says_by_which_evidence_it_is_worth_what():
    by_credit = [score("credit", one, value) for one, value in (("a", 0.0), ("b", 0.5), ("c", 0.01))]
    assert remarks(by_credit) == ["worth +0.50: that of hop 2, to which it led", "", ""]
    assert remarks(by_credit, ("Ada Berg", "Lemons", "Oslo"))[2] == (
        "worth +0.05: that of the first passage that states the reference"
    )
    joint = [("a", 0.9, -0.1), ("b", 1.5, 1.2), ("c", 0.1, 0.2)]
    scores = [score("joint_gain", one, value) for one, value, _ in joint]
    scores += [score("reference_gain", one, part) for one, _, part in joint]
    assert remarks(scores) == [
        "worth +2.20 (joint gain): question +1.00, answer +1.20 of hop 2, to which it led",
        "worth +1.50 (joint gain): question +0.30, answer +1.20",
        "worth +0.10 (joint gain): question -0.10, answer +0.20",
    ]


NUMBERS = st.floats(-1, 1).map(lambda value: round(value, 3))


@st.composite
def scored_runs(draw):
    """A run of some hops with leads, and its scores by one deciding score, all exact."""
    ids = [f"step-{number}" for number in range(1, draw(st.integers(2, 5)) + 1)]
    leads = [
        (id, *draw(st.lists(st.sampled_from(ids[:at]), min_size=1, max_size=2, unique=True)))
        for at, id in enumerate(ids)
        for _ in range(draw(st.integers(0, 2)) if at else 0)
    ]
    run = Run(id="r", question="question", steps=steps(*ids, leads=leads), references=["answer"])
    for step in run.steps:
        step.passages = [Passage(draw(st.sampled_from(("text", "text", "the answer"))))]
    values = {id: draw(NUMBERS) for id in ids}
    scores = [score("credit", id, value, stderr=None) for id, value in values.items()]
    scores += [score("loss_without", id, draw(NUMBERS), stderr=None) for id in ids]
    total = sum(values.values())
    scores.append(Score("delta_likelihood_total", total, "run", "r", reference_source="gold"))
    if draw(st.booleans()):
        for id in ids:
            part = draw(NUMBERS)
            scores += [score("reference_gain", id, part, stderr=None)]
            scores += [score("joint_gain", id, part + draw(NUMBERS), stderr=None)]
    return run, scores


def best_answer(own, run, at):
    """The largest answer's part of a hop and of those to which it led, found forwards."""
    led = [
        later
        for later, step in enumerate(run.steps)
        if any({one.step_id for one in lead.sources} == {run.steps[at].id} for lead in step.led_by)
    ]
    parts = [best_answer(own, run, later) for later in led]
    return max([own[run.steps[at].id].answer, *(part for part in parts if part > 0)])


@given(scored_runs())
def test_worth_is_the_hops_own_number_with_the_best_answers_part_of_what_it_led_to(case):
    run, scores = case
    own, found = own_worth(scores), worth_of_hops(scores, run.steps)
    for at, step in enumerate(run.steps):
        one = found[step.id]
        assert abs(one.value - own[step.id].question - best_answer(own, run, at)) < 1e-9
        assert one.question == own[step.id].question
        assert (one.value > own[step.id].value + 1e-9) <= bool(one.through)
    credits = sum(one.value for one in scores if one.name == "credit")
    assert abs(credits - scores[-1 if scores[-1].level == "run" else 2 * len(run.steps)].value) < 1e-6


@given(scored_runs())
def test_the_sentence_says_which_evidence_spoke_and_is_right(case):
    run, scores = case
    own, found = own_worth(scores), facts_of(run, CountedScores(scores)).worth
    known = {(one.name, one.step_id): one.value for one in scores}
    text = " ".join(RunView(run, scores).explanation.sentences)
    for number, joint, question in re.findall(
        r"[Hh]op (\d) bears on the question \(joint gain ([+-]\d\.\d\d), ([+-]\d\.\d\d) of it", text
    ):
        id = f"step-{number}"
        assert abs(float(joint) - known["joint_gain", id]) < 0.006
        assert float(joint) >= JOINT_PAYS - 0.006
        gained = known["joint_gain", id] - known["reference_gain", id]
        assert abs(float(question) - gained) < 0.006
        assert gained > known["reference_gain", id]
    clauses = re.findall(r"((?:hop \d(?:, | and )?)+),? which (?:paid|brought the reference)", text)
    paid = {f"step-{number}" for clause in clauses for number in re.findall(r"\d", clause)}
    through = {
        one.through
        for id, one in found.items()
        if one.through and one.paid and not own[id].paid and found[one.through].paid
    }
    assert paid == through or "more queries" in text
    assert all(own[id].paid or found[id].stated for id in paid)
    for number in re.findall(r"[Bb]y words, hop (\d) brought the reference", text):
        came = next(step.id for step in run.steps if step.passages[0].text == "the answer")
        assert came == f"step-{number}"
        assert came not in paid
    idle = re.search(r"hops? ([^;]*?) added nothing measurable", text, re.IGNORECASE)
    for number in re.findall(r"\d", idle[1]) if idle else ():
        hop = found[f"step-{number}"]
        assert own[f"step-{number}"].paid or not (hop.stated or (hop.paid and hop.through in paid))


@given(scored_runs())
def test_the_sentence_and_the_worth_have_the_same_leads(case):
    """A hop that led to one without which the run loses its gain is needed, and has the gain of that hop."""
    run, scores = case
    work, worth = facts_of(run, CountedScores(scores)).work.hops, worth_of_hops(scores, run.steps)
    needed = re.search(r"[Hh]ops? ([^;(]*?) (?:was|were \w+) needed", RunView(run, scores).explanation.text)
    for hop, step in zip(work, run.steps, strict=True):
        assert [run.steps[number - 1].id for number in hop.led_from] == led_from(step)
        for number in hop.led_from:
            gain = worth[step.id].answer
            assert gain <= 0 or worth[run.steps[number - 1].id].answer >= gain - 1e-9
            named = re.findall(r"\d", needed[1]) if needed and "more" not in needed[1] else []
            assert str(hop.number) not in named or str(number) in named
