"""Every token that was asked is in the usage of a score, whatever became of the answer."""

from dataclasses import dataclass, replace

import pytest
from support.reader import FIRM, FIRM_QUERY, NOISE, TableEntailer, reader, run, step, two_hops

from ragguard.engines.entailer import Pair
from ragguard.errors import EngineUnreachable
from ragguard.records import Score, Usage
from ragguard.scorers import Belief, Contested
from ragguard.scorers.answers import Answers
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import EntailQuestion

LONG = "After having looked at everything that was retrieved, I can say with some confidence that " * 3


async def told_and_asked(the_run, scorers, engine=None, entailer=None):
    """Returns the usage that the scores tell and the usage that the models gave, without times."""
    engine, entailer = engine or reader(), entailer or TableEntailer()
    given = []

    def listening(verb):
        async def listen(*args, **more):
            answer = await verb(*args, **more)
            given.append(answer.usage)
            return answer

        return listen

    engine.sample, engine.label_probs = listening(engine.sample), listening(engine.label_probs)
    entailer.entail = listening(entailer.entail)
    results = await ScoringPipeline(engine, entailer=entailer, scorers=scorers).results(the_run)
    told = sum((one.usage for one in results if isinstance(one, Score)), Usage())
    return replace(told, seconds=0.0), replace(sum(given, Usage()), seconds=0.0)


@pytest.mark.parametrize(
    ("the_run", "scorers"),
    [
        (two_hops(), [Belief()]),
        (two_hops(references=None, answer=LONG + "it was Ada Berg."), [Belief()]),
        (two_hops(references=None, answer=LONG), [Belief()]),
        (two_hops(references=None, answer=None), [Belief()]),
        (two_hops(answer="Bo Lund"), [Answers()]),
        (two_hops(), [Contested()]),
        (two_hops(), ["belief", "utility", "coverage", "grades"]),
        (run(step(FIRM_QUERY, [FIRM, NOISE]), references=["A text that is long. " * 30]), ["belief", "coverage"]),
    ],
)  # fmt: skip
async def test_scores_tell_what_was_asked(the_run, scorers):
    told, asked = await told_and_asked(the_run, scorers)
    assert told == asked != Usage()


async def test_samples_that_could_not_be_compared_are_counted_by_another_score():
    the_run = two_hops(references=None, answer="Ada Berg")
    gone = TableEntailer(fault=EngineUnreachable("gone"))
    told, asked = await told_and_asked(the_run, ["belief", "utility"], entailer=gone)
    assert told == asked


async def test_a_scorer_of_ones_own_need_not_tell_what_it_asked():
    @dataclass(frozen=True)
    class Own:
        name: str = "own"
        version: str = "1"

        async def score(self, view, ask):
            await ask([EntailQuestion(Pair("q", "a", "b"))])
            return [Score("own", 1.0, "run", view.run.id)]

    told, asked = await told_and_asked(two_hops(), [Own()])
    assert told == asked == Usage(1, 1, 10)
