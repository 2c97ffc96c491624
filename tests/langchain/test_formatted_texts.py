"""A text that calls of a chain make of the text of documents: the model reads what is left of it in the prompt."""

from __future__ import annotations

from operator import itemgetter

import pytest
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from support.langchain_agents import ANSWER, QUESTION
from support.langchain_parts import ListRetriever, says

PROMPT = ChatPromptTemplate.from_template("{context} {input}")
PASSAGES = [f"shelf {number} about {QUESTION}" for number in range(3)]


def format_docs(found):
    return "\n\n".join(one.page_content for one in found)


def titled_docs(found):
    return "\n\n".join(f"[{number}] {one.page_content}" for number, one in enumerate(found))


def format_titled_docs(found):
    return titled_docs(found)


def first(text):
    return text.split("\n\n")[0]


def first_two(text):
    return "\n\n".join(text.split("\n\n")[:2])


def context_of(*parts):
    chain = ListRetriever(count=3)
    for part in parts:
        chain = chain | part
    return {"context": chain, "input": RunnablePassthrough()} | PROMPT | says(ANSWER)


def read(captured):
    (step,) = captured.run.steps
    assert len(step.candidates) == 3
    return [passage.text for passage in step.passages]


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream"])
@pytest.mark.parametrize("function", [format_docs, lambda found: format_docs(found)], ids=["named", "lambda"])
async def test_a_text_that_is_cut_after_it_was_made(captured, config, function, mode):
    chain = context_of(function, first_two)
    if mode == "invoke":
        chain.invoke(QUESTION, config)
    elif mode == "ainvoke":
        await chain.ainvoke(QUESTION, config)
    else:
        list(chain.stream(QUESTION, config))
    assert read(captured) == PASSAGES[:2]


@pytest.mark.parametrize("function", [titled_docs, format_titled_docs])
def test_a_text_with_titles_that_is_cut_twice(captured, config, function):
    context_of(function, first_two, first).invoke(QUESTION, config)
    assert read(captured) == [f"[0] {PASSAGES[0]}"]


@pytest.mark.parametrize("characters", [5, len(PASSAGES[1]) - 1])
@pytest.mark.parametrize("separator", ["\n", "\n\n"])
def test_a_cut_inside_of_a_later_passage_leaves_its_part(captured, config, separator, characters):
    def joined(found):
        return separator.join(one.page_content for one in found)

    end = len(PASSAGES[0]) + len(separator) + characters
    context_of(joined, lambda text: text[:end]).invoke(QUESTION, config)
    assert read(captured) == [PASSAGES[0], PASSAGES[1][:characters]]
    (step,) = captured.run.steps
    assert [one.id for one in step.passages] == ["shelf-0", "shelf-1"]
    assert [one.text for one in step.candidates] == PASSAGES


def test_a_cut_at_a_separator_leaves_whole_passages(captured, config):
    context_of(format_docs, lambda text: text[: len(PASSAGES[0]) + 1]).invoke(QUESTION, config)
    assert read(captured) == [PASSAGES[0]]


def test_cut_inside_of_the_first_passage_makes_the_delivery_unknown(captured, config):
    context_of(format_docs, lambda text: text[: len(PASSAGES[0]) - 5]).invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_a_text_in_words_of_its_own_says_nothing(captured, config):
    context_of(format_docs, lambda text: "None of the words that were retrieved stands here. " * 9).invoke(
        QUESTION, config
    )
    (step,) = captured.run.steps
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_a_text_that_stays_as_it_is(captured, config):
    context_of(format_docs, str.strip).invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert step.passages is step.candidates


def test_a_cut_beside_the_whole_text_takes_nothing_away(captured, config):
    whole = ListRetriever(count=3) | RunnableLambda(format_docs)
    prompt = ChatPromptTemplate.from_template("{start} {context} {input}")
    chain = (
        {"context": whole, "input": RunnablePassthrough()}
        | RunnablePassthrough.assign(start=itemgetter("context") | RunnableLambda(first))
        | prompt
        | says(ANSWER)
    )
    chain.invoke(QUESTION, config)
    assert read(captured) == PASSAGES


def test_a_cut_in_an_earlier_prompt_than_the_whole_text(captured, config):
    def twice(query):
        text = RunnableLambda(format_docs).invoke(ListRetriever(count=3).invoke(query))
        for context in (RunnableLambda(first).invoke(text), text):
            (PROMPT | says(ANSWER)).invoke({"context": context, "input": query})
        return ANSWER

    RunnableLambda(twice).invoke(QUESTION, config)
    assert read(captured) == PASSAGES


@pytest.mark.parametrize("picked", [itemgetter("input"), lambda given: given["input"].upper()])
def test_the_question_picked_from_the_mapping_of_the_documents_is_no_text_of_theirs(captured, config, picked):
    found = {"found": ListRetriever(count=3), "input": RunnablePassthrough()}
    chain = (
        found
        | RunnablePassthrough.assign()
        | {"context": lambda one: format_docs(one["found"]), "input": picked}
    )
    (chain | PROMPT | says(ANSWER)).invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert read(captured) == PASSAGES
    assert "ragguard.delivered" not in step.metadata
