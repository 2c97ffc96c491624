"""One number for all hops of a run decides which hop paid."""

from ragguard.facts.hop_worth import worth_of_hops
from ragguard.records import Score


def score(name, step, value, source="gold", **more):
    return Score(name, value, "step", "r", step_id=step, stderr=0.1, reference_source=source, **more)


def test_credit_comes_before_what_a_hop_added_when_it_came():
    scores = [score(name, step, 0.5) for name in ("delta_seper", "credit") for step in ("a", "b")]
    worth = worth_of_hops(scores)
    assert {step: (one.name, one.value, one.stderr) for step, one in worth.items()} == {
        "a": ("credit", 0.5, 0.1), "b": ("credit", 0.5, 0.1),
    }  # fmt: skip


def test_all_hops_of_a_run_have_the_same_number():
    scores = [score("delta_seper", "a", 0.1), score("delta_seper", "b", 0.2), score("credit", "a", 0.9)]
    assert {step: (one.name, one.value) for step, one in worth_of_hops(scores).items()} == {
        "a": ("delta_seper", 0.1), "b": ("delta_seper", 0.2),
    }  # fmt: skip


def test_gold_comes_before_support_in_any_order():
    gold, support = score("credit", "a", 0.2), score("credit", "a", 0.8, "answer")
    assert worth_of_hops([gold, support]) == worth_of_hops([support, gold])
    assert worth_of_hops([support, gold])["a"].value == 0.2
    assert worth_of_hops([support])["a"].support


def test_without_a_deciding_score_there_is_no_worth():
    assert worth_of_hops([]) == {}
    assert worth_of_hops([score("seper", "a", 0.3)]) == {}
    assert worth_of_hops([score("credit", "a", 0.3), score("delta_seper", "b", 0.3)]) == {}


def test_a_hop_paid_if_its_worth_is_more_than_its_error():
    def paid(name, value, stderr):
        one = Score(name, value, "step", "r", step_id="a", stderr=stderr)
        return worth_of_hops([one])["a"].paid

    assert paid("credit", 0.3, 0.1)
    assert not paid("credit", 0.15, 0.1)
    assert not paid("credit", 0.04, 0.0)
    assert not paid("credit", -0.5, 0.0)
    assert paid("joint_gain", 0.3, 0.0)
    assert not paid("joint_gain", 0.2, 0.0)
