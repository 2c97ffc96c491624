"""Which passage is blamed for a wrong answer: the one that states it, or the lie one hop earlier that led to it."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from ragguard import world
from ragguard.analysis.page_head import PageHead
from ragguard.facts.causes import CauseCounts, note_of
from ragguard.facts.explanation import explain
from ragguard.facts.run_view import RunView
from ragguard.records import Passage, RetrievalStep, Run, Score
from ragguard.world.cases import state
from ragguard.world.facts import Fact

QUESTION = "Where was the founder of Zantek Foods born?"
FOUNDER, LIE = Passage("Ada Berg founded Zantek Foods."), Passage("Bo Lund founded Zantek Foods.")
RIGHT, OTHER = Passage("Ada Berg was born in East Dundale."), Passage("Bo Lund was born in West Ashwick.")
FALSE = Passage("Records show that Ada Berg was born in West Ashwick.")
IDLE = Passage("Lemons are yellow.")


def run_of(first, second, query="Where was Bo Lund born?", answer="West Ashwick", **more):
    steps = [
        RetrievalStep("a", "r", 0, 0, "Who founded Zantek Foods?", first, list(first)),
        RetrievalStep("b", "r", 1, 1, query, second, list(second)),
    ]
    return Run("r", QUESTION, ["East Dundale"], answer, steps, **more)


def explained(run, idle=(IDLE,)):
    """Explains a wrong run in which the judge calls all passages relevant but some."""
    scores = [Score("answer_correct", 0.0, "run", run.id, label="wrong")]
    for step in run.steps:
        scores += [
            Score("utility", 0.0 if one in idle else 0.9, "passage", run.id, step.id, position=rank)
            for rank, one in enumerate(step.candidates, 1)
        ]
    return explain(run, scores)


@pytest.mark.parametrize(
    ("run", "cause", "blamed"),
    [
        # By another passage that has another name in the place of the words that the query took.
        (run_of([FOUNDER, LIE], [OTHER]), "misled", {(1, 2)}),
        # By a passage with the reference, which is about somebody else: read, or in the run's pool.
        (run_of([LIE], [OTHER, RIGHT]), "contested", {(1, 1)}),
        (run_of([LIE], [OTHER], pool=[replace(RIGHT, grade=5)]), "misled", {(1, 1)}),
        (run_of([LIE], [OTHER], pool=[replace(FOUNDER, grade=4)]), "misled", {(1, 1)}),
        # A pool whose passages are graded as wrong shows nothing.
        (run_of([LIE], [OTHER], pool=[replace(RIGHT, grade=1)]), "misled", {(2, 1)}),
        # The lie states the answer: the passage with the reference is about the same person.
        (run_of([FOUNDER], [FALSE], "Where was Ada Berg born?", pool=[replace(RIGHT, grade=5)]), "misled", {(2, 1)}),
        (run_of([FOUNDER], [FALSE, RIGHT], "Where was Ada Berg born?"), "contested", {(2, 1)}),
        (run_of([FOUNDER], [FALSE], "Where was Ada Berg born?"), "misled", {(2, 1)}),
        # An answer that only led to the next hop is no claim about the question.
        (run_of([FOUNDER], [IDLE], "Where was Ada Berg born?", "Ada Berg"), "not_found", set()),
        (run_of([FOUNDER], [RIGHT], "Where was Ada Berg born?", "Ada Berg"), "not_used", set()),
        # Nor is what the question says itself.
        (run_of([FOUNDER], [RIGHT], "Where was Ada Berg born?", "Zantek Foods"), "not_used", set()),
        (run_of([FOUNDER], [IDLE], "Where was Ada Berg born?", "Zantek Foods"), "not_found", set()),
    ],
)  # fmt: skip
def test_the_lie_is_blamed_and_not_the_true_passage_behind_it(run, cause, blamed):
    found = explained(run)
    assert (found.cause, found.sources) == (cause, blamed)
    led = "passage 1.2 led" if (1, 2) in blamed else "passage 1.1 led"
    assert (led in found.text) == any(hop == 1 for hop, _ in blamed)


def test_wrong_answer_is_the_verdict_on_the_passage_that_states_it_and_not_on_the_one_that_led_there():
    steps = [
        RetrievalStep("a", "r", 0, 0, "founder of Kelp Mill", [
            Passage("Kelp Mill was founded by Mina Dahl.", id="founder"),
            Passage("Otto Rask painted Kelp Mill.", id="painter"),
        ]),
        RetrievalStep("b", "r", 1, 1, "death of Otto Rask", [
            Passage("Otto Rask died in 1950.", id="other"), Passage("Mina Dahl died in 1930.", id="right"),
        ]),
    ]  # fmt: skip
    run = Run("r", "When did the founder of Kelp Mill die?", ["1930"], "1950", steps)
    view = RunView(run, [Score("answer_correct", 0.0, "run", "r", label="wrong")])
    verdicts = {(hop.number, one.rank): one.verdict.words for hop in view.hops for one in hop.passages}
    assert verdicts == {(1, 1): "", (1, 2): "led astray", (2, 1): "wrong answer", (2, 2): ""}
    assert view.explanation.text.startswith("Wrong: “1950” is in passage 2.1, to which passage 1.2 led,")
    told = view.explanation.as_dict()
    assert told["wrong_passages"] == [{"hop": 2, "rank": 1}]
    assert told["led_astray_by"] == [{"hop": 1, "rank": 2}]
    uses = {use.id: use for use in note_of(view).documents}
    assert [id for id, use in uses.items() if use.contested] == ["other", "right"]
    head, counts = PageHead(), CauseCounts()
    head.add(0, view)
    counts.add(note_of(view))
    data = head.as_data(counts)
    assert [(one["name"], one["wrong"], one["astray"]) for one in data["documents"]] == [
        ("other", [0], []),
        ("painter", [], [0]),
    ]
    assert [hop["misled"] for hop in data["hops"]] == [[], [0]]


def astray(case, seed, *, gold_too, pool):
    """Returns a run of nano's world whose first hop reads a lie, whose second hop asks about the name in the lie, and
    whose answer is what a true passage says of that name; None if the world knows nothing of it."""
    lie = next(one for one in case.of_kind("contradiction") if one.metadata["hop"] == 1)
    name, relation = str(lie.metadata["object"]), case.facts[1].relation
    value = world.default_world().facts.object(name, relation)
    if value is None or value in case.references:
        return None
    rng = random.Random(seed)
    true = Passage(state(rng, Fact(relation, name, value), "heldout"), id="true", metadata={"kind": "true"})
    run = world.make_run(case, mislead=(1,), answer=value, seed=seed)
    if gold_too:
        for listed in (run.steps[0].passages, run.steps[0].candidates):
            listed.append(case.gold[0])
    run.steps[1].query = case.sub_questions[1].replace(case.bridge, name)
    run.steps[1].passages = run.steps[1].candidates = [true, *case.of_kind("unrelated")[:2]]
    return run if pool else replace(run, pool=None)


def test_in_nanos_world_the_lie_is_blamed_in_either_hop():
    """Of a good judge, which calls relevant what answers the query of its hop, true or false."""
    built, right = Counter[str](), Counter[str]()
    for at, case in enumerate(world.cases(60, seed=21, hops=2)):
        runs = {
            "first hop, with the pool": astray(case, at, gold_too=False, pool=True),
            "first hop, beside the truth": astray(case, at, gold_too=True, pool=False),
            "second hop": world.make_run(case, mislead=(2,), seed=at),
            "second hop, without the pool": replace(world.make_run(case, mislead=(2,), seed=at), pool=None),
        }
        for name, run in runs.items():
            if run is None:
                continue
            told = [(hop, step, rank, one) for hop, step in enumerate(run.steps, 1)
                    for rank, one in enumerate(step.passages, 1)]  # fmt: skip
            idle = [one for *_, one in told if one.metadata["kind"] not in ("gold", "contradiction", "true")]
            lies = {(hop, rank) for hop, _, rank, one in told if one.metadata["kind"] == "contradiction"}
            built[name] += 1
            right[name] += explained(run, idle).sources == lies
    assert min(built.values()) >= 30
    assert all(right[name] >= 0.95 * count for name, count in built.items()), (built, right)
