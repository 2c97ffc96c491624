"""Pipelines of LangChain that fail between a retrieval and the model: what a model got of it is not known."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from support.langchain_agents import ANSWER, QUESTION
from support.langchain_parts import ListRetriever, Says, says

from ragguard.capture.handle import RunHandle

PROMPT = ChatPromptTemplate.from_template("{context} {input}")


def format_docs(found):
    return "\n\n".join(one.page_content for one in found)


def fails(given):
    raise ImportError("no spacy")


class FailingModel(Says):
    def _generate(self, *arguments, **named):
        raise ImportError("the model is down")


def delivered(step):
    return len(step.passages), step.metadata.get("ragguard.delivered", "")


def chain(*parts, model=None):
    context = ListRetriever(count=3)
    for part in parts:
        context = context | part
    return {"context": context, "input": RunnablePassthrough()} | PROMPT | (model or says(ANSWER))


async def test_a_chain_that_is_cancelled_before_its_prompt(captured, config):
    async def waits(found):
        task.cancel()
        await asyncio.sleep(0)
        return ""

    parts = chain(RunnableLambda(lambda found: "", afunc=waits))
    task = asyncio.create_task(parts.ainvoke(QUESTION, config))
    with suppress(asyncio.CancelledError):
        await task
    (step,) = captured.run.steps
    assert (captured.run.status, *delivered(step)) == ("cancelled", 3, "unknown")


def test_a_model_that_fails_was_given_the_prompt(captured, config):
    with suppress(ImportError):
        chain(format_docs, model=FailingModel(turns=[])).invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert (captured.run.status, *delivered(step)) == ("error", 3, "")


def test_passage_read_in_an_earlier_call_counts_as_read(captured, config):
    def twice(query):
        answer = chain(format_docs).invoke(query)
        ListRetriever(shelf="second", count=2).invoke(query)
        raise ImportError(answer)

    with suppress(ImportError):
        RunnableLambda(twice).invoke(QUESTION, config)
    assert [delivered(step) for step in captured.run.steps] == [(3, ""), (2, "unknown")]


def test_a_run_of_the_users_that_goes_on(captured, recorder, config):
    with RunHandle(recorder, QUESTION):
        ListRetriever(shelf="first", count=1).invoke(QUESTION, config)
        with suppress(ImportError):
            chain(fails).invoke(QUESTION, config)
        chain(format_docs).invoke(QUESTION, config)
    assert [delivered(step) for step in captured.run.steps] == [(0, ""), (3, ""), (3, "")]
