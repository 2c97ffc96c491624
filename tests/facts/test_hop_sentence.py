"""The sentence about hops: its cases, and that every claim in it is true of the numbers."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragguard.facts.hop_sentence import NEEDED, HopWork, RunWork, hop_sentence, is_measurable
from ragguard.facts.verdicts import BeliefGain


def gain(value, stderr=0.05):
    return BeliefGain(value, stderr)


def hop(number, worth=None, loss=None, added=None, led_by=(), **more):
    known = [None if value is None else gain(value) for value in (worth, loss, added)]
    more.setdefault("led_from", [sources[0] for sources in led_by if len(sources) == 1])
    return HopWork(number, more.pop("read", True), *known, led_by=led_by, **more)


@pytest.mark.parametrize(
    ("hops", "total", "sentence"),
    [
        (
            [hop(1, 0.31, 0.62, 0.0), hop(2, 0.31, 0.6, 0.62, [[1]]), hop(3, 0.0, 0.0, 0.0)], 0.62,
            "Hops 1 and 2 were both needed (without hop 1: -0.62, without hop 2: -0.60); hop 3 added nothing "
            "measurable; hop 1 led to hop 2.",
        ),
        (
            [hop(1, 0.1, 0.0), hop(2, 0.0, 0.0, led_by=[[1]]), hop(3, 0.5, 0.6, led_by=[[2]])], 0.62,
            "Hops 1, 2 and 3 were all needed (without hop 3: -0.60); hop 1 led to hop 2, which led to hop 3.",
        ),
        (
            [hop(1, 0.0, 0.0), hop(2, 0.0, 0.0), hop(3, 0.6, 0.6, led_by=[[1], [2]])], 0.62,
            "Hops 1, 2 and 3 were all needed (without hop 3: -0.60); hop 1 led to hop 3; hop 2 led to hop 3.",
        ),
        (
            [hop(1, 0.0, 0.0), hop(2, 0.0, 0.0), hop(3, 0.6, 0.6, led_by=[[1], [2]], led_from=[1])], 0.62,
            "Hops 1 and 3 were both needed (without hop 3: -0.60); hop 1 led to hop 3; hop 2 led to hop 3.",
        ),
        (
            [hop(1, 0.0, 0.0), hop(2, 0.0, 0.0), hop(3, 0.6, 0.6, led_by=[[1, 2]])], 0.62,
            "Hop 3 was needed (without it: -0.60); hop 1 or hop 2 led to hop 3.",
        ),
        ([hop(1, 0.6, 0.6), hop(2, 0.02, 0.02)], 0.62,
         "Hop 1 was needed (without it: -0.60); hop 2 added nothing measurable."),
        ([hop(1, 0.62, 0.62)], 0.62, "Hop 1 raised the belief (+0.62 ± 0.05)."),
        (
            [hop(1, 0.31, 0.0), hop(2, 0.31, 0.01)], 0.62,
            "Hops 1 (+0.31 ± 0.05) and 2 (+0.31 ± 0.05) raised the belief, though the belief stays if any single "
            "one of them is left out.",
        ),
        (
            [hop(1, 0.6, 0.6), hop(2, -0.3, -0.3)], 0.3,
            "Hop 1 was needed (without it: -0.60); hop 2 lowered the belief (-0.30 ± 0.05).",
        ),
        ([hop(1, 0.0, 0.0), hop(2, 0.01, 0.0)], 0.01, "No hop moved the belief measurably."),
        (
            [hop(1, 0.06, 0.02), hop(2, 0.07, 0.03)], 0.13,
            "Retrieval raised the belief by 0.13 ± 0.05; the numbers do not say which of the two hops did.",
        ),
        (
            [hop(1, 0.0), hop(2, 0.0)], None,
            "What the hops did to the belief together is not known; none changed it measurably by itself.",
        ),
        ([hop(1, added=0.0), hop(2, added=0.9)], 0.9,
         "Hop 2 raised the belief when it came (+0.90 ± 0.05); hop 1 added nothing measurable."),
        ([hop(1), hop(2, led_by=[[1]]), hop(3, led_by=[[2]])], None, "Hop 1 led to hop 2, which led to hop 3."),
        ([hop(1), hop(2), hop(3, led_by=[[1, 2], [1]])], None, "Hop 1 led to hop 3; hop 1 or hop 2 led to hop 3."),
        ([hop(1), hop(2)], None, ""),
        ([hop(1, 0.02, -0.64), hop(2, 0.03, 0.02)], 0.0,
         "Without hop 1 the belief would be higher (+0.64); hop 2 added nothing measurable."),
        ([], None, ""),
        (
            [hop(1, 0.0, paid_through=3), hop(2, 0.0, led_by=[[1]], paid_through=3), hop(3, 0.3, led_by=[[2]]),
             hop(4, 0.0)], 0.3,
            "Hop 3 raised the belief (+0.30 ± 0.05); hop 4 added nothing measurable; hop 1 led to hop 2, which led to "
            "hop 3, which paid.",
        ),
        (
            [hop(1, 0.0, paid_through=2), hop(2, 0.3, led_by=[[1]]), hop(3, 0.0, led_by=[[2]])], 0.3,
            "Hop 2 raised the belief (+0.30 ± 0.05); hop 3 added nothing measurable; hop 1 led to hop 2, which paid "
            "and led to hop 3.",
        ),
        (
            [hop(1, 0.5, 0.5), hop(2, read=False), hop(3)], 0.5,
            "Hop 1 was needed (without it: -0.50); hop 2 gave the model nothing to read; what hop 3 did was not "
            "measured.",
        ),
    ],
)  # fmt: skip
def test_each_case_has_its_sentence(hops, total, sentence):
    assert hop_sentence(RunWork(hops, None if total is None else gain(total))) == sentence


def test_belief_in_the_runs_own_answer_is_named():
    run = RunWork([hop(1, 0.62, 0.62)], gain(0.62), support=True)
    assert hop_sentence(run) == "Hop 1 raised the belief in this answer (+0.62 ± 0.05)."


def test_a_long_chain_names_the_hop_on_its_way_that_paid():
    hops = [hop(number, 0.0, led_by=[[number - 1]] if number > 1 else [], paid_through=4 if number < 4 else 0)
            for number in range(1, 7)]  # fmt: skip
    hops[3] = hop(4, 0.5, led_by=[[3]])
    said = hop_sentence(RunWork(hops, gain(0.5)))
    assert said.endswith("hop 1 led to hop 2, and so on by hop 4, which paid, to hop 6.")


def test_fifty_hops_are_said_in_a_few_words():
    hops = [hop(number, 0.0, 0.0, led_by=[[number - 1]] if number > 1 else []) for number in range(1, 51)]
    hops[0] = hop(1, 0.5, 0.5)
    assert hop_sentence(RunWork(hops, gain(0.5))) == (
        "Hop 1 was needed (without it: -0.50); hops 2, 3, 4 and 46 more added nothing measurable; "
        "hop 1 led to hop 2, and so on to hop 50."
    )


gains = st.none() | st.builds(
    BeliefGain,
    st.floats(-1, 1).map(lambda value: round(value, 3)),
    st.none() | st.sampled_from((0.0, 0.05, 0.3)),
)
works = st.builds(HopWork, st.just(0), st.booleans(), gains, gains, gains)


@st.composite
def runs(draw):
    hops = draw(st.lists(works, max_size=6))
    numbered = [
        HopWork(
            number, one.read, one.worth, one.loss, one.added, led_by := (
                draw(st.lists(st.lists(st.integers(1, number - 1), min_size=1, max_size=3, unique=True), max_size=2))
                if number > 1 else []
            ),
            [sources[0] for sources in led_by if len(sources) == 1 and draw(st.booleans())],
        )
        for number, one in enumerate(hops, 1)
    ]  # fmt: skip
    brought = draw(st.integers(0, len(numbered)))
    return RunWork(numbered, draw(gains), sampled=draw(gains), support=draw(st.booleans()), brought=brought)


def about_hops(clause):
    return clause.startswith(("hop", "without hop")) and "led to" not in clause


@given(runs())
def test_likelihood_names_no_hop_if_the_answers_show_no_change(run):
    sampled = run.sampled
    exact = any(one.worth and not one.worth.stderr for one in run.hops)
    unclear = sampled and sampled.stderr and abs(sampled.value) < max(0.05, 2 * sampled.stderr)
    clauses = hop_sentence(run).removesuffix(".").lower().split("; ")
    said = f"retrieval changed {run.words} by {sampled}, which is no clear change"
    assert (said in clauses) is bool(exact and unclear)
    assert not (exact and unclear and any(map(about_hops, clauses)))


def test_what_the_belief_does_not_say_of_hops_words_may():
    """The first line of a right run was silent on who paid if the sampled belief showed no clear change."""
    hops = [hop(1, 0.0, 0.0), hop(2, 0.06, 0.02, led_by=[[1]]), hop(3, 0.07, 0.03, led_by=[[2]])]
    words = "by words, hop 3 brought the reference; hop 1 led to hop 2, which led to hop 3."
    assert hop_sentence(RunWork(hops, gain(0.4), brought=3)) == (
        f"Retrieval raised the belief by 0.40 ± 0.05; the numbers do not say which of the hops did; {words}"
    )
    exact = [HopWork(one.number, worth=gain(0.3, None), led_by=one.led_by) for one in hops]
    assert hop_sentence(RunWork(exact, gain(0.9, None), sampled=gain(0.03, 0.11), brought=3)) == (
        f"Retrieval changed the belief by +0.03 ± 0.11, which is no clear change; {words}"
    )
    assert "so no hop can be named; by words, hop 3" in hop_sentence(
        RunWork(exact, gain(0.9, None), sampled=gain(-0.6, 0.11), brought=3)
    )
    raised = [hop(1, 0.6, 0.2), hop(2, 0.0, 0.0, stated=True)]
    assert hop_sentence(RunWork(raised, gain(0.6), brought=2)) == (
        "Hop 1 raised the belief (+0.60 ± 0.05); by words, hop 2 brought the reference."
    )
    assert "by words" not in hop_sentence(RunWork([hop(1, 0.0)], gain(0.4), brought=1))


def test_a_likelihood_does_not_contradict_the_sampled_belief():
    hops = [HopWork(number, worth=gain(0.02, None), loss=gain(0.3, None)) for number in (1, 2)]
    run = RunWork(hops, gain(0.04, None), sampled=gain(0.03, 0.11))
    assert hop_sentence(run) == "Retrieval changed the belief by +0.03 ± 0.11, which is no clear change."
    clear = RunWork([HopWork(1, worth=gain(0.6, None))], gain(0.6, None), sampled=gain(0.7, 0.11))
    assert hop_sentence(clear) == "Hop 1 raised the belief (+0.60)."


@pytest.mark.parametrize(
    ("likelier", "sampled"), [(0.0, gain(-0.61, 0.26)), (0.99, gain(-0.75, 0.21)), (-0.04, gain(0.35, 0.17))]
)
def test_a_clear_change_of_the_answers_that_the_likelihood_denies_is_said(likelier, sampled):
    """ "No hop moved the belief" stood under a ΔSePer of -0.61 ± 0.26, and "raised (+0.99)" under -0.75 ± 0.21."""
    one = gain(likelier, None)
    run = RunWork([HopWork(1, worth=one, loss=one, added=sampled)], one, sampled=sampled)
    assert hop_sentence(run) == (
        f"Retrieval changed the belief by {sampled} in sampled answers and by {one} by likelihood, so no hop can be "
        f"named."
    )


def named(clause):
    """The numbers of the hops that a clause names, without the numbers in brackets."""
    return [int(number) for number in re.findall(r"\d+", re.sub(r"\([^)]*\)|\d+ more", "", clause))]


@given(runs())
def test_every_claim_is_true_of_the_numbers(run):
    sentence = hop_sentence(run)
    by_number = {one.number: one for one in run.hops}
    by_credit = any(one.worth for one in run.hops)
    value = {one.number: one.worth if by_credit else one.added for one in run.hops}
    if not any(value.values()):
        assert "belief" not in sentence
    for clause in filter(None, sentence.removesuffix(".").lower().split("; ")):
        hops = named(clause)
        if "led to" in clause:
            if " or " in clause:
                assert any({*hops[:-1]} <= {*map(int, one)} for one in by_number[hops[-1]].led_by)
            elif "and so on" not in clause:
                for earlier, later in pairwise(hops):
                    assert [earlier] in [list(one) for one in by_number[later].led_by]
        elif clause.startswith("without hop"):
            (number,) = hops
            loss = by_number[number].loss
            assert is_measurable(loss)
            assert loss.value > 0 if "lower" in clause else loss.value < 0
        elif "needed" in clause:
            for number in hops:
                loss = by_number[number].loss
                # A clause names three hops at most: those to which one led may be among the others.
                leads = [number in later.led_from for later in run.hops]
                own = is_measurable(loss) and loss.value >= NEEDED * run.total.value > 0
                assert own or any(leads)
            for number, shown in re.findall(r"without hop (\d+): ([+-]\d\.\d\d)", clause):
                assert float(shown) == pytest.approx(-by_number[int(number)].loss.value, abs=0.006)
        elif "raised" in clause or "lowered" in clause:
            up = 1 if "raised" in clause else -1
            if clause.startswith("retrieval"):
                assert is_measurable(run.total)
                assert run.total.value * up > 0
                assert not any(is_measurable(one) for one in value.values())
            for number in hops if clause.startswith("hop") else ():
                assert is_measurable(value[number])
                assert value[number].value * up > 0
            if "stays without" in clause:
                assert not any(is_measurable(by_number[number].loss) for number in hops)
        elif "no hop moved" in clause:
            assert not is_measurable(run.total)
            assert not any(is_measurable(one) for one in value.values())
            assert not any(is_measurable(one.loss) for one in run.hops if value[one.number])
        elif "nothing measurable" in clause:
            assert not any(is_measurable(value[number]) for number in hops)
            assert not any(is_measurable(by_number[number].loss) for number in hops)
        elif "nothing to read" in clause:
            assert not any(by_number[number].read for number in hops)
        elif "was not measured" in clause:
            assert all(value[number] is None for number in hops)
        else:
            assert (
                clause.startswith(
                    (
                        "what the hops did",
                        "none changed",
                        "the numbers do not say which",
                        "retrieval",
                        "by words",
                    )
                )
                or "more queries" in clause
            )
