"""Over-long prompts lose passages first, as little as can be, and never a question."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragguard.engines.base import Message, Prompt, Span
from ragguard.engines.prompts import load_prompts
from ragguard.engines.truncation import fit, shorten
from ragguard.errors import InvalidInput, PromptTooLong

PROMPTS = load_prompts("default")
QUESTION = "Who founded the firm based in Oslo?"


class Counter:
    """Counts words, with a frame around each message; remembers how often it was asked."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    async def __call__(self, prompts):
        self.rounds.append(len(prompts))
        return [sum(len(message.content.split()) + 4 for message in prompt.messages) for prompt in prompts]


def asked(*passages: str) -> Prompt:
    return PROMPTS.render("answer", passages, question=QUESTION)


async def test_prompts_that_fit_are_unchanged_and_counted_once():
    count = Counter()
    prompts = [asked("short"), asked("also short")]
    assert await fit(prompts, count, 200) == (prompts, {})
    assert count.rounds == [2]
    assert await fit([], count, 10) == ([], {})


async def test_the_last_passage_goes_first_and_the_question_never():
    one, two, three = ("alpha " * 60, "beta " * 60, "gamma " * 60)
    count = Counter()
    prompt = asked(one, two, three)
    ((fitted,), cut) = await fit([prompt], count, 200)
    text = fitted.messages[-1].content
    assert text.count("alpha") == 60
    assert 0 < text.count("beta") <= 60
    assert "gamma" not in text
    assert text.endswith(prompt.messages[-1].content[-80:])
    assert QUESTION in text
    assert text.count("<document") == 3, "the frames stay whole"
    (before,), (after,) = await count([prompt]), await count([fitted])
    assert cut == {0: before - after}
    assert 180 <= after <= 200


async def test_words_stay_whole():
    ((fitted,), _) = await fit([asked("Ada Berg founded it " * 100)], Counter(), 150)
    inside = fitted.messages[-1].content.split("<document 1>\n")[1].split("\n</document>")[0]
    assert set(inside.split()) == {"Ada", "Berg", "founded", "it"}


async def test_a_question_too_long_by_itself_is_an_error():
    long = PROMPTS.render("answer", ["x"], question="why " * 300)
    with pytest.raises(PromptTooLong, match=r"prompt 1 has \d+ tokens, 150 fit.*are left when") as caught:
        await fit([asked("fine"), long], Counter(), 150)
    assert caught.value.limit == 150
    assert caught.value.tokens > 300


async def test_a_caller_that_allows_no_cut_gets_an_error():
    with pytest.raises(PromptTooLong, match="nothing in it may be cut"):
        await fit([asked("word " * 500).without_cuts()], Counter(), 100)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="ab \n東", max_size=60), min_size=1, max_size=6),
    st.integers(min_value=0, max_value=400),
)
def test_shorten_takes_only_what_may_be_cut(passages, characters):
    prompt = asked(*passages)
    shorter = shorten(prompt, characters)
    before, after = prompt.messages[-1].content, shorter.messages[-1].content
    room = sum(span.end - span.start for span in prompt.cuttable)
    assert min(characters, room) <= len(before) - len(after) <= room
    outside = outside_of(prompt)
    assert outside_of(shorter) == outside
    assert shorter.messages[0] == prompt.messages[0]


def outside_of(prompt: Prompt) -> str:
    """The text that no span covers."""
    text = prompt.messages[-1].content
    spans = [span for span in prompt.cuttable if span.message == len(prompt.messages) - 1]
    for span in sorted(spans, reverse=True):
        assert 0 <= span.start <= span.end <= len(text)
        text = text[: span.start] + text[span.end :]
    return text


def test_spans_in_several_messages():
    prompt = Prompt(
        (Message("user", "one two three"), Message("user", "four five six")),
        (Span(1, 5, 9), Span(0, 4, 7)),
    )
    shorter = shorten(prompt, 7)
    assert [message.content for message in shorter.messages] == ["one  three", "four  six"]
    assert shorter.cuttable == ()


@pytest.mark.parametrize("span", [Span(1, 0, 1), Span(0, 0, 10**6), Span(0, 5, 1), Span(0, -3, 2)])
async def test_a_cut_outside_of_the_prompt_is_refused(span):
    prompt = Prompt((Message("user", "word " * 50),), (span,))
    with pytest.raises(InvalidInput, match="cuttable"):
        await fit([prompt], Counter(), 10)


async def test_output_that_fills_the_context_is_told_in_words():
    with pytest.raises(PromptTooLong, match="none fits beside as much output"):
        await fit([Prompt((Message("user", "word"),))], Counter(), -4)
