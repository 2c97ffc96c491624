"""One wave when all wait, every question once, one call a kind, faults kept to what they concern."""

import asyncio
from dataclasses import dataclass, replace

import pytest
from support.reader import FIRM, FIRM_QUERY, NOISE, TableEntailer, reader, run, step, two_hops
from support.scripted_engine import ScriptedEngine

from ragguard.engines.base import as_prompt
from ragguard.engines.entailment import Pair
from ragguard.errors import CapExceeded, EngineProtocolError, EngineUnreachable, PromptTooLong
from ragguard.records import Score, Usage
from ragguard.scorers import Belief, Contested
from ragguard.scorers.answers import Answers
from ragguard.scorers.asker import Asker, Models, tokens_of
from ragguard.scorers.pipeline import ScoringPipeline
from ragguard.scorers.question import EntailQuestion, LabelQuestion, SampleQuestion

LABELS = ("A", "B")


def ask_label(text, labels=LABELS):
    return LabelQuestion(as_prompt(text), labels)


def ask_samples(text, n=3):
    return SampleQuestion(as_prompt(text), n, 16, 1.0, 7)


def asker(engine, cap=100_000, **more):
    return Asker(Models(engine, engine, TableEntailer()), cap, **more)


def put(ask, *rounds):
    """A scorer that asks one round after the other."""

    async def scorer():
        return [await ask(questions) for questions in rounds]

    return scorer


async def test_scorers_side_by_side_share_their_waves_and_one_that_ends_early_holds_nobody_up():
    engine = ScriptedEngine()
    ask = asker(engine)
    await ask.attend(
        [
            put(ask, [ask_label("one")], [ask_label("two")]),
            put(ask, [ask_label("three")], [ask_label("four")]),
            put(ask, [ask_samples("five")], [ask_label("six")]),
            put(ask, [ask_label("seven")]),
            put(ask),
        ]
    )
    assert [(call.verb, call.texts) for call in engine.calls] == [
        ("label_probs", ["one", "three", "seven"]),
        ("sample", ["five"]),
        ("label_probs", ["two", "four", "six"]),
    ]


async def test_equal_questions_are_asked_once_and_answered_everywhere():
    engine = ScriptedEngine()
    ask = asker(engine)
    first, second = await ask.attend(
        [put(ask, [ask_label("one"), ask_label("one")], [ask_label("two")]), put(ask, [ask_label("one")])]
    )
    assert [call.texts for call in engine.calls] == [["one"], ["two"]]
    assert first[0][0].p == first[0][1].p == second[0][0].p


async def test_prompts_of_several_scorers_cost_once_and_add_up():
    engine = ScriptedEngine()
    ask = asker(engine)
    asked = [ask_label(f"question {'x ' * n}") for n in range(7)]
    one, two = await ask.attend([put(ask, asked), put(ask, asked)])
    total = sum((answer.usage for round_ in (*one, *two) for answer in round_), Usage())
    real = ScriptedEngine()
    expected = (await real.label_probs([question.prompt for question in asked], LABELS)).usage
    assert (total.requests, total.prompts, total.prompt_tokens, total.output_tokens) == (
        expected.requests, expected.prompts, expected.prompt_tokens, expected.output_tokens,
    )  # fmt: skip
    assert total.seconds == pytest.approx(expected.seconds)


async def test_one_bad_prompt_spoils_only_itself():
    def fault(call):
        return PromptTooLong("too long", limit=10, tokens=99) if "bad" in call.texts else None

    engine = ScriptedEngine(fault=fault)
    ask = asker(engine)
    asked = [ask_label(text) for text in ("a", "b", "bad", "c", "d")]
    (answers,) = (await ask.attend([put(ask, asked)]))[0]
    assert [isinstance(answer, PromptTooLong) for answer in answers] == [False, False, True, False, False]
    assert len(engine.calls) < 10


async def test_a_server_that_talks_nonsense_is_not_asked_for_every_prompt_alone():
    engine = ScriptedEngine(fault=lambda call: EngineProtocolError("nonsense"))
    ask = asker(engine)
    (answers,) = (await ask.attend([put(ask, [ask_label(str(n)) for n in range(500)])]))[0]
    assert all(isinstance(answer, EngineProtocolError) for answer in answers)
    assert len(engine.calls) <= 40


async def test_a_dead_engine_is_asked_once_a_call_and_others_still_answer():
    def fault(call):
        return EngineUnreachable("gone") if call.verb == "sample" else None

    engine = ScriptedEngine(fault=fault)
    ask = asker(engine)
    samples, labels = await ask.attend(
        [put(ask, [ask_samples(str(n)) for n in range(5)]), put(ask, [ask_label("one")])]
    )
    assert all(isinstance(answer, EngineUnreachable) for answer in samples[0])
    assert labels[0][0].p
    assert len(engine.calls) == 2


async def test_numbers_that_cannot_be_are_refused():
    class Wrong(ScriptedEngine):
        async def sample(self, prompts, n=10, *rest, **more):
            return await super().sample(prompts[:1], n - 1, *rest, **more)

    ask = asker(Wrong(label=lambda text, label: float("nan")))
    labels, samples = await ask.attend(
        [put(ask, [ask_label("one")]), put(ask, [ask_samples("two"), ask_samples("three")])]
    )
    assert "the numbers nan" in str(labels[0][0])
    assert "the engine gave lists of [2] answers" in str(samples[0][0])


async def test_over_the_cap_nothing_is_asked():
    engine = ScriptedEngine()
    small, large = ask_label("word"), ask_label("word " * 500)
    ask = asker(engine, cap=tokens_of(small) + 10)
    (answers,) = (await ask.attend([put(ask, [small, large])]))[0]
    assert answers[0].p
    assert isinstance(answers[1], CapExceeded)
    assert [call.texts for call in engine.calls] == [["word"]]


async def test_a_scorer_that_waits_for_something_else_holds_nobody_up():
    engine = ScriptedEngine()
    ask = asker(engine)
    free = asyncio.Event()

    async def waits():
        await free.wait()
        return await ask([ask_label("late")])

    async def goes_on():
        answers = await ask([ask_label("early")])
        free.set()
        return answers

    late, early = await ask.attend([waits, goes_on])
    assert late[0].p
    assert early[0].p
    assert [call.texts for call in engine.calls] == [["early"], ["late"]]


async def test_cancelling_takes_the_calls_along():
    engine = ScriptedEngine(gate=asyncio.Event())
    ask = asker(engine)
    task = asyncio.ensure_future(ask.attend([put(ask, [ask_label("one")]), put(ask, [ask_samples("two")])]))
    while engine.running < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while engine.running:
        await asyncio.sleep(0)


async def test_entailment_is_one_call_and_priority_goes_along():
    engine, entailer = ScriptedEngine(), TableEntailer()
    ask = Asker(Models(engine, engine, entailer, priority=3, deadline=5.0))
    pairs = [EntailQuestion(Pair("q", "a", "b")), EntailQuestion(Pair("q", "a", "a"))]
    answers, _ = await ask.attend([put(ask, pairs), put(ask, [ask_label("one")])])
    assert [answer.p[0] > 0.5 for answer in answers[0]] == [False, True]
    assert entailer.calls == 1
    assert (engine.calls[0].priority, engine.calls[0].deadline) == (3, 5.0)


async def test_answers_that_are_cut_to_be_compared_are_said(caplog):
    class Narrow(TableEntailer):
        async def entail(self, pairs, **more):
            return replace(await super().entail(pairs, **more), truncated={0: 9})

    await Asker(Models(ScriptedEngine(), ScriptedEngine(), Narrow()))([EntailQuestion(Pair("q", "a", "b"))])
    assert "answers were cut to fit the context" in caplog.text


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
