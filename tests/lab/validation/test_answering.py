"""Contexts get the reader's answers and their grades; several readers answer the same contexts, each for itself."""

from dataclasses import replace

import pytest

from ragguard import world
from ragguard.engines.base import Sample, Samples
from ragguard.engines.connect import connect
from ragguard.errors import EngineProtocolError
from ragguard.lab.validation.answering import compare_readers, grader, with_answers, with_outcomes
from ragguard.lab.validation.contexts import Context
from ragguard.records import Passage


@pytest.fixture(scope="module")
def engine():
    return connect("nano")


def context(case, *kinds, **given):
    passages = tuple(next(p for p in case.pool() if p.metadata["kind"] == kind) for kind in kinds)
    return Context(
        id="/".join(kinds), question_id="q", question=case.question, passages=passages,
        references=tuple(case.references), **given,
    )  # fmt: skip


async def test_gold_is_answered_right_a_lie_wrong_and_the_unrelated_not_at_all(engine):
    contexts = []
    for case in world.cases(6, seed=3):
        contexts += [context(case, kind) for kind in ("gold", "contradiction", "unrelated")]
    judged = await with_outcomes(await with_answers(contexts, engine), await grader(engine))
    assert [one.id for one in judged] == [one.id for one in contexts]
    outcomes = [one.outcome for one in judged]
    assert (outcomes[0::3], outcomes[1::3], outcomes[2::3]) == ([2.0] * 6, [0.0] * 6, [1.0] * 6)


async def test_known_answer_is_not_asked_again():
    class Silent:
        info = staticmethod(connect("nano").info)

        async def sample(self, *args, **kwargs):
            raise AssertionError("asked")

        label_probs = aclose = sample

    case = world.cases(1, seed=3)[0]
    known = [
        context(case, "gold", answer="Nobody", outcome=0.25),
        context(case, "unrelated", answer=case.references[0]),
        context(case, "unrelated", answer="I do not know"),
    ]
    judged = await with_outcomes(await with_answers(known, Silent()), Silent())
    assert [one.answer for one in judged] == ["Nobody", case.references[0], "I do not know"]
    assert [one.outcome for one in judged] == [0.25, 2.0, 1.0]


async def test_nano_compares_no_answers_of_its_own_world_and_another_engine_does(engine):
    class Other:
        async def info(self):
            return replace(await engine.info(), prompts="default")

    other = Other()
    assert await grader(engine) is None
    assert await grader(other) is other


async def test_an_alias_is_right_by_what_follows_from_it(engine):
    case, other = [c for c in world.cases(50, seed=3) if len(c.references) > 1][:2]
    full, *_, last = case.references
    named = replace(context(case, "gold"), references=(full,))
    judged = await with_outcomes(
        [
            replace(named, answer=last),
            replace(named, answer=other.references[0]),
            replace(named, references=(), answer=full),
        ],
        engine,
    )
    assert [one.outcome for one in judged] == [2.0, 0.0, None]


class Counting:
    """An engine that counts its calls and the prompts in them."""

    def __init__(self, broken=None):
        self.prompts, self.broken, self._nano = [], broken, connect("nano")

    async def info(self):
        return await self._nano.info()

    async def sample(self, prompts, *args, **kwargs):
        self.prompts.append(len(prompts))
        if self.broken is not None:
            for prompt in prompts:
                self.broken(prompt)
        return Samples([[Sample("Nobody", ())] for _ in prompts])

    async def label_probs(self, *args, **kwargs):
        return await self._nano.label_probs(*args, **kwargs)

    async def aclose(self):
        await self._nano.aclose()


async def test_equal_contexts_are_answered_in_one_batch_and_once():
    engine = Counting()
    cases = world.cases(5, seed=3)
    answered = await with_answers([context(case, "gold") for case in cases] * 3, engine)
    assert engine.prompts == [5]
    assert {one.answer for one in answered} == {"Nobody"}


async def test_a_context_that_the_model_cannot_take_stays_without_an_answer_alone():
    def refuse(prompt):
        if "poison" in prompt.messages[0].content:
            raise EngineProtocolError("no such thing")

    cases = world.cases(4, seed=3)
    contexts = [context(case, "gold") for case in cases]
    contexts[2] = replace(contexts[2], passages=(Passage("poison"),))
    answered = await with_answers(contexts, Counting(refuse))
    assert [one.answer for one in answered] == ["Nobody", "Nobody", None, "Nobody"]
    assert (await with_outcomes(answered, None))[2].outcome is None


NANO = connect("nano")


class Mute:
    """Reads like nano and always abstains."""

    info, label_probs, aclose = NANO.info, NANO.label_probs, NANO.aclose

    async def sample(
        self, prompts, n=10, max_tokens=64, temperature=1.0, seed=None, *, deadline=None, priority=0
    ):
        return Samples([[Sample("NO-RESPONSE", (-0.1,))] * n for _ in prompts])


def contexts(n):
    for case in world.cases(n, seed=5):
        for kind, relevance in (("gold", 1), ("contradiction", 0), ("unrelated", 0)):
            yield Context(
                id=f"{case.question} {kind}", question_id=case.question, question=case.question,
                passages=tuple(case.of_kind(kind)[:1]), references=tuple(case.references),
                relevance=(float(relevance),), answer="what another model said", outcome=2.0,
            )  # fmt: skip


async def test_each_reader_answers_for_itself_and_has_its_own_correlations_and_beliefs():
    tables = await compare_readers(
        list(contexts(6)), {"nano": NANO, "mute": Mute()}, scorers=("utility", "belief")
    )
    rows = {row[0]: row for row in tables[0].rows}
    assert rows["nano: with a relevant passage"][1:4] == (100.0, 0.0, 0.0)
    assert rows["nano: without a relevant passage"][1:4] == (0.0, 50.0, 50.0)
    assert rows["mute"][1:4] == (0.0, 100.0, 0.0)
    before, after, change = rows["nano: with a relevant passage"][4:7]
    assert change == pytest.approx(after - before)
    assert change > 0.5
    assert tables[1].columns == ("metric", "nano", "from", "to")  # all outcomes of the other one are alike
    assert "mute: no metric can be compared" in " ".join(tables[0].notes)
