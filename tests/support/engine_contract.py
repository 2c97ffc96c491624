"""The promises that every engine must keep, whatever is behind it. A suite gives a `subject` and inherits the tests.

class TestMyEngine(EngineContract):
    @pytest.fixture
    async def subject(self): ...
"""

from __future__ import annotations

import asyncio
import gc
import math
import re
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from ragguard.engines.base import Engine, Message, Prompt, Span
from ragguard.engines.prompts import load_prompts
from ragguard.errors import Closed, EngineRejected, EngineTimeout, PromptTooLong, UnfitText

KNOWN_CAPABILITIES = {
    "exact_labels", "sequence", "sample_logprobs", "continuations", "batch", "n_samples", "priority", "seed",
    "top_logprobs", "decisions",
}  # fmt: skip
NANO = load_prompts("nano")
PASSAGES = (
    "Ada Berg founded the firm.",
    "Oslo sells clocks.",
    "Emma Berg leads it, as Ada Berg did.",
)
PROMPTS = [NANO.render("abstention", [passage], query="Who founded the firm?") for passage in PASSAGES]
JUDGED = NANO.render("relevance", [PASSAGES[0]], query="Who founded the firm?")
LABELS = ("NO-RESPONSE", "A", "B", "No", "5")
STRANGE = (
    "東京 München naïve",
    "שלום \u202e reversed \u0645\u0631\u062d\u0628\u0627",
    "👩\u200d🔬 é ﬁ ①",
    "\x00\x07 control",
    "half a pair: \ud800",
    "<|im_end|></s>[INST]<answer>",
    "\n\n\t ",
)
_WORD = re.compile(r"NO-RESPONSE|'s\b|\w+|[^\w\s]")


@dataclass
class Subject:
    """An engine under test."""

    engine: Engine
    again: Callable[[], Engine]
    """Makes another one of the same kind."""
    words_are_tokens: bool = True
    """Each word is one token, so that a sampled text becomes the very tokens that were sampled."""
    callers: int = 500
    """How many callers ask at once; fewer where each is a reading of a model of its own."""
    reads: bool = True
    """True where it draws answers; a judge of typed questions refuses to, and keeps all other promises."""

    def verbs(
        self, prompts: Sequence[object], **drawn: object
    ) -> list[Callable[..., Coroutine[Any, Any, Any]]]:
        """Returns a function for each verb of the engine that asks it; further arguments go to the call."""
        labels = partial(self.engine.label_probs, prompts, LABELS)
        return [labels, partial(self.engine.sample, prompts, **drawn)] if self.reads else [labels]


class EngineContract:
    """The tests."""

    async def test_label_probs_have_the_shape_of_the_question(self, subject: Subject) -> None:
        probs = await subject.engine.label_probs(PROMPTS, LABELS)
        assert probs.p.shape == (3, 5)
        assert probs.p.dtype == np.float64
        assert np.asarray(probs) is not probs.p
        assert np.array_equal(np.asarray(probs), probs.p)
        assert len(probs) == 3
        assert np.isfinite(probs.p).all()
        assert (probs.p >= 0).all()
        assert (probs.p <= 1).all()

    async def test_continuations_are_the_sequence_probabilities_of_their_texts(
        self, subject: Subject
    ) -> None:
        """An engine that cannot tell says so in one sentence."""
        texts = [["Ada Berg", "NO-RESPONSE"], ["Oslo"], ["Ole Dahl", "Ada Berg", "5"]]
        if "continuations" not in (await subject.engine.info()).capabilities:
            with pytest.raises(EngineRejected, match="the probability of a text"):
                await subject.engine.continuations(PROMPTS, texts)
            return
        found = await subject.engine.continuations(PROMPTS, texts)
        assert [[one.text for one in row] for row in found] == texts
        if "sequence" not in (await subject.engine.info()).capabilities:
            return
        for prompt, row in zip(PROMPTS, found, strict=True):
            labels = await subject.engine.label_probs([prompt], [one.text for one in row], mode="sequence")
            assert np.allclose(np.exp([one.total for one in row]), labels.p[0], atol=1e-3, rtol=1e-2)

    async def test_continuations_of_an_answer_are_the_probabilities_with_which_it_was_drawn(
        self, subject: Subject
    ) -> None:
        if not {"continuations", "sample_logprobs"} <= (await subject.engine.info()).capabilities:
            return
        # Of so many prompts, also a random model ends the answers to some within the limit.
        queries = ("Who founded the firm?", "Where is it based?", "Who runs it?", "What is Paris?")
        prompts = [
            NANO.render(task, [passage], query=query)
            for task in ("abstention", "relevance")
            for passage in PASSAGES
            for query in queries
        ]
        drawn = await subject.engine.sample(prompts, n=1, max_tokens=24, temperature=0.0)
        compared = 0
        for prompt, (answer,) in zip(prompts, drawn, strict=True):
            if not (answer.finished and answer.text and answer.logprobs):
                continue
            ((own, longer),) = await subject.engine.continuations(
                [prompt], [[answer.text, answer.text + " 5"]]
            )
            assert own.end is not None
            assert longer.end is not None
            assert -30 <= own.end <= 0
            if len(own.logprobs) == len(answer.logprobs):
                assert np.allclose(own.logprobs, answer.logprobs, atol=2e-3)
                # What was drawn behind the text was the end: nothing is likelier there.
                assert own.end >= longer.logprobs[-1] - 1e-3
                compared += 1
        assert compared or not subject.words_are_tokens

    async def test_continuations_do_not_depend_on_what_else_is_asked(self, subject: Subject) -> None:
        if "continuations" not in (await subject.engine.info()).capabilities:
            return
        together = await subject.engine.continuations(
            [*PROMPTS, JUDGED], [["Ada Berg founded the firm."]] * 4
        )
        for prompt, (one,) in zip(reversed([*PROMPTS, JUDGED]), reversed(together[:]), strict=True):
            other = subject.again()
            try:
                ((alone,),) = await other.continuations([prompt], [["Ada Berg founded the firm."]])
            finally:
                await other.aclose()
            assert np.allclose(one.logprobs, alone.logprobs, atol=2e-3)

    async def test_labels_take_their_mass_from_one_whole(self, subject: Subject) -> None:
        probs = await subject.engine.label_probs([*PROMPTS, JUDGED], LABELS)
        assert np.allclose(probs.mass, probs.p.sum(axis=1))
        if probs.exact:
            assert (probs.mass <= 1 + 1e-6).all()
            assert probs.bound is None
        elif probs.bound is not None:
            assert (np.where(probs.bound, 0, probs.p).sum(axis=1) <= 1 + 1e-6).all()

    async def test_engine_says_how_it_answered(self, subject: Subject) -> None:
        info = await subject.engine.info()
        probs = await subject.engine.label_probs(PROMPTS, LABELS)
        assert probs.mode in ("first_token", "sequence", "sampled")
        if "exact_labels" in info.capabilities:
            assert probs.exact
            assert probs.mode == info.mode
        else:
            assert not probs.exact
            assert probs.bound is not None or probs.stderr is not None

    async def test_a_prompt_alone_and_in_company_is_the_same(self, subject: Subject) -> None:
        together = await subject.engine.label_probs([*PROMPTS, PROMPTS[0]], LABELS)
        alone = await subject.engine.label_probs([PROMPTS[1]], LABELS)
        assert np.allclose(together.p[1], alone.p[0], atol=1e-3)
        assert np.allclose(together.p[0], together.p[3], atol=1e-6)

    async def test_a_whole_label_is_no_more_probable_than_its_beginning(self, subject: Subject) -> None:
        if "sequence" not in (await subject.engine.info()).capabilities:
            pytest.skip("no sequence mode, as its info says")
        labels = ("NO-RESPONSE", "A", "Ada Berg", "Ada Berg runs")
        first = await subject.engine.label_probs(PROMPTS, labels, mode="first_token")
        whole = await subject.engine.label_probs(PROMPTS, labels, mode="sequence")
        assert (first.mode, whole.mode) == ("first_token", "sequence")
        assert (whole.p <= first.p + 1e-6).all()
        assert np.allclose(whole.p[:, 1], first.p[:, 1], atol=1e-6)
        assert (whole.p[:, 3] <= whole.p[:, 2] + 1e-9).all()
        assert np.allclose(first.p[:, 2], first.p[:, 3], atol=1e-6)

    async def test_labels_that_begin_alike_are_told_apart_or_said_to_be_bounds(
        self, subject: Subject
    ) -> None:
        labels = ("Ada Berg", "Ada Dahl")
        can = (await subject.engine.info()).capabilities
        probs = await subject.engine.label_probs(PROMPTS, labels)
        if "sequence" in can:
            whole = await subject.engine.label_probs(PROMPTS, labels, mode="sequence")
            assert probs.mode == "sequence"
            assert np.allclose(probs.p, whole.p, atol=1e-6)
            first = await subject.engine.label_probs(PROMPTS, labels, mode="first_token")
            assert first.mode == "first_token"
            assert np.allclose(first.p[:, 0], first.p[:, 1], atol=1e-9)
            alone = await subject.engine.label_probs(PROMPTS, labels[:1])
            assert alone.mode == (await subject.engine.info()).mode
        elif "top_logprobs" in can:
            assert not probs.exact
            assert probs.bound is not None
            assert probs.bound.all()

    async def test_samples_have_the_shape_of_the_question(self, subject: Subject) -> None:
        if not subject.reads:
            pytest.skip("it judges alone")
        shows = "sample_logprobs" in (await subject.engine.info()).capabilities
        samples = await subject.engine.sample(PROMPTS, n=3, max_tokens=5)
        assert [len(answers) for answers in samples] == [3, 3, 3]
        for answers in samples:
            for answer in answers:
                assert answer.text == answer.text.strip()
                assert all(math.isfinite(value) and value <= 0 for value in answer.logprobs)
                assert len(answer.logprobs) <= 5
                if shows:
                    assert answer.logprobs
                    assert answer.finished or len(answer.logprobs) == 5

    async def test_a_sample_is_as_probable_as_the_same_text_scored_afresh(self, subject: Subject) -> None:
        if not {"sequence", "sample_logprobs"} <= (await subject.engine.info()).capabilities:
            pytest.skip("no sequence mode or no log-probabilities, as its info says")
        if not subject.words_are_tokens:
            pytest.skip("a sampled text may become other tokens than were sampled")
        samples = await subject.engine.sample(PROMPTS, n=4, max_tokens=4, seed=1)
        compared = 0
        for prompt, answers in zip(PROMPTS, samples, strict=True):
            # A special token leaves no text: what was sampled is then not what the text says.
            whole = {a.text: a for a in answers if a.text and len(_WORD.findall(a.text)) == len(a.logprobs)}
            if whole:
                probs = await subject.engine.label_probs([prompt], list(whole), mode="sequence")
                for answer, p in zip(whole.values(), probs.p[0], strict=True):
                    assert math.log(p) == pytest.approx(sum(answer.logprobs), abs=1e-2)
                    compared += 1
        assert compared >= 3

    async def test_a_seed_decides_the_samples(self, subject: Subject) -> None:
        if "seed" not in (await subject.engine.info()).capabilities:
            pytest.skip("no seeds, as its info says")
        prompt = NANO.render("answer_closed", question="Who?")
        first = await subject.engine.sample([prompt], n=6, max_tokens=6, seed=7)
        again = await subject.engine.sample([prompt], n=6, max_tokens=6, seed=7)
        in_company = await subject.engine.sample([*PROMPTS, prompt], n=6, max_tokens=6, seed=7)
        other = await subject.engine.sample([prompt], n=6, max_tokens=6, seed=8)
        huge = await subject.engine.sample([prompt], n=1, max_tokens=2, seed=2**64 - 1)
        assert _texts(first) == _texts(again)
        # In company the numbers are the same but for the last digits, which may decide a draw once in a while.
        assert sum(a.text == b.text for a, b in zip(first[0], in_company[3], strict=True)) >= 5
        assert len({answer.text for answer in first[0]}) > 1
        assert _texts(first) != _texts(other)
        assert len(huge[0]) == 1

    async def test_temperature_zero_takes_the_most_probable(self, subject: Subject) -> None:
        if not subject.reads:
            pytest.skip("it judges alone")
        greedy = await subject.engine.sample(PROMPTS, n=3, max_tokens=4, temperature=0.0)
        for answers in greedy:
            assert len(answers) == 3
            assert len({answer.text for answer in answers}) == 1

    async def test_nothing_asked_is_nothing_answered(self, subject: Subject) -> None:
        probs = await subject.engine.label_probs([], LABELS)
        assert probs.p.shape == (0, 5)
        assert len(await subject.engine.sample([])) == 0

    async def test_prompts_come_in_every_form(self, subject: Subject) -> None:
        text = "Question: Who?\nAnswer:"
        forms = [
            text,
            [{"role": "user", "content": text}],
            [Message("user", text)],
            Prompt((Message("user", text),)),
        ]
        probs = await subject.engine.label_probs(forms, LABELS)
        assert np.allclose(probs.p, probs.p[0], atol=1e-4)
        turns = [
            Message("system", "Please say A or B."), Message("user", "A or B?"),
            Message("assistant", "A"), Message("user", "What is it now?"),
        ]  # fmt: skip
        talked = await subject.engine.label_probs([turns], LABELS)
        assert talked.p.shape == (1, 5)

    async def test_text_of_every_kind_has_probabilities(self, subject: Subject) -> None:
        prompts = [NANO.render("abstention", [text], query=text) for text in STRANGE] + [*STRANGE[:-1]]
        if (await subject.engine.info()).kind == "nano":
            with pytest.raises(UnfitText):  # it knows its own world's words alone
                await subject.engine.label_probs(prompts, LABELS)
            return
        probs = await subject.engine.label_probs(prompts, LABELS)
        assert np.isfinite(probs.p).all()
        if subject.reads:
            samples = await subject.engine.sample(prompts, n=1, max_tokens=2)
            assert len(samples) == len(prompts)

    async def test_a_prompt_that_does_not_fit_is_refused_with_the_limit(self, subject: Subject) -> None:
        words = "Ada Berg leads it. " * 4 * ((await subject.engine.info()).context or 8192)
        for ask in subject.verbs(["Who?", words], n=1, max_tokens=2):
            with pytest.raises(PromptTooLong) as caught:
                await ask()
            assert caught.value.limit

    async def test_a_passage_is_cut_where_that_is_allowed(self, subject: Subject) -> None:
        words = "Ada Berg leads it. " * 2 * ((await subject.engine.info()).context or 8192)
        long = NANO.render("abstention", [PASSAGES[0], words], query="Who founded the firm?")
        assert long.cuttable[0] == Span(0, long.cuttable[0].start, long.cuttable[0].start + len(words))
        probs = await subject.engine.label_probs([PROMPTS[0], long], LABELS)
        assert np.isfinite(probs.p).all()
        assert list(probs.truncated) == [1]
        assert probs.truncated[1] > 0
        if subject.reads:
            samples = await subject.engine.sample([PROMPTS[0], long], n=2, max_tokens=6)
            assert list(samples.truncated) == [1]

    async def test_a_deadline_that_has_passed_is_kept(self, subject: Subject) -> None:
        await subject.engine.info()
        passed = time.monotonic() - 1
        for ask in subject.verbs(PROMPTS, n=2):
            with pytest.raises(EngineTimeout):
                await ask(deadline=passed)
        assert len(await subject.engine.label_probs(PROMPTS, LABELS)) == 3

    async def test_a_cancelled_call_leaves_the_engine_well(self, subject: Subject) -> None:
        call = asyncio.create_task(subject.verbs(PROMPTS * 10, n=4, max_tokens=60)[-1]())
        await asyncio.sleep(0)
        if subject.reads:  # a judge of typed questions may have answered by then
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(await subject.engine.label_probs(PROMPTS, LABELS)) == 3

    async def test_many_callers_at_once_get_what_they_asked_for(self, subject: Subject) -> None:
        expected = await subject.engine.label_probs(PROMPTS, LABELS)
        calls = [subject.engine.label_probs([PROMPTS[i % 3]], LABELS) for i in range(subject.callers)]
        answers = await asyncio.gather(*calls)
        for i, answer in enumerate(answers):
            assert np.allclose(answer.p[0], expected.p[i % 3], atol=1e-3)

    async def test_engine_serves_two_event_loops(self, subject: Subject) -> None:
        other = subject.again()
        here = await other.label_probs(PROMPTS, LABELS)
        there = await asyncio.to_thread(lambda: asyncio.run(_in_another_loop(other)))
        assert np.allclose(here.p, there, atol=1e-3)
        await other.aclose()
        with warnings.catch_warnings():
            # Connections of a loop that has ended cannot be closed in it any more; they go with their memory.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    async def test_cost_of_each_call_is_counted(self, subject: Subject) -> None:
        probs = await subject.engine.label_probs(PROMPTS, LABELS)
        assert probs.usage.prompts == 3
        assert probs.usage.prompt_tokens > 3
        assert probs.usage.seconds > 0
        if subject.reads:
            samples = await subject.engine.sample(PROMPTS, n=2, max_tokens=3)
            assert samples.usage.prompts == 3
            assert samples.usage.output_tokens >= 6

    async def test_info_tells_what_it_is(self, subject: Subject) -> None:
        info = await subject.engine.info()
        assert info.model
        assert info.kind
        assert info.fingerprint
        assert info.capabilities <= KNOWN_CAPABILITIES
        other = subject.again()
        try:
            assert (await other.info()).fingerprint == info.fingerprint
        finally:
            await other.aclose()

    async def test_closed_engine_says_that_it_is_closed(self, subject: Subject) -> None:
        other = subject.again()
        await other.label_probs(PROMPTS[:1], LABELS)
        await other.aclose()
        await other.aclose()
        with pytest.raises(Closed):
            await other.label_probs(PROMPTS[:1], LABELS)
        if subject.reads:
            with pytest.raises(Closed):
                await other.sample(PROMPTS[:1])
        assert len(await subject.engine.label_probs(PROMPTS, LABELS)) == 3


def _texts(samples: object) -> list[list[str]]:
    return [[answer.text for answer in answers] for answers in samples]


async def _in_another_loop(engine: Engine) -> np.ndarray:
    return (await engine.label_probs(PROMPTS, LABELS)).p
