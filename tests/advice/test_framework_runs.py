"""Advice about the run of a framework, which is known to the store alone."""

from __future__ import annotations

from langchain_core.runnables import RunnableLambda

import ragguard
from ragguard import RagGuard, world
from ragguard_langchain import RagGuardCallback

CASE = world.cases(4, hops=2)[3]
PATIENT = 120_000
"""Milliseconds for advice, so that a busy machine changes nothing."""


def find(number):
    ragguard.retrieved(CASE.sub_questions[number], [CASE.gold[number], CASE.distractors[0]])


def advised(rg, research):
    """Calls a function as a chain that is captured, and returns what it returned."""
    chain = RunnableLambda(research)
    return chain.invoke(CASE.question, {"callbacks": [RagGuardCallback(rg)]})


def test_advice_is_given_inside_of_the_call_and_stored_with_the_step(nano):
    def research(question):
        given = []
        for number in range(2):
            find(number)
            given.append(ragguard.current_run().advise(PATIENT))
        return [one.action for one in given]

    with RagGuard(nano, store=None, scorers=()) as rg:
        assert advised(rg, research) == ["continue", "answer"]
        rg.flush(timeout=60)
        (run,) = rg.runs()
        assert [(step.advice.action, step.advice.step_id) for step in run.steps] == [
            ("continue", run.steps[0].id), ("answer", run.steps[1].id),
        ]  # fmt: skip


def test_advice_is_given_though_nobody_holds_the_ragguard_any_more(nano):
    def research(question):
        find(0)
        return ragguard.current_run().advise(PATIENT).status

    def callback():
        return RagGuardCallback(RagGuard(nano, store=None, scorers=()))

    assert RunnableLambda(research).invoke(CASE.question, {"callbacks": [callback()]}) == "judged"
