"""LCEL: chains, streams, batches, parallel branches, nested retrievers."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
)
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnablePassthrough
from support.langchain_parts import ListRetriever, says

from ragguard.capture.handle import RunHandle
from ragguard_langchain import instrument, uninstrument

QUESTION = "Who founded the firm based in Oslo?"
ANSWER = "Ada Berg of Oslo"


def rag(retriever=None, answer=ANSWER):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    return (
        {"context": retriever or ListRetriever(), "question": RunnablePassthrough()}
        | prompt
        | says(answer)
        | StrOutputParser()
    )


def test_a_streamed_chain_gives_every_token_and_its_question_at_the_end(captured, config):
    assert [token for token in rag().stream(QUESTION, config) if token] == ["Ada", " Berg", " of", " Oslo"]
    assert (captured.run.question, captured.run.answer, captured.run.status) == (QUESTION, ANSWER, "ok")
    assert captured.step.query == QUESTION


async def test_an_async_stream_that_is_left_early_is_cancelled(captured, config):
    stream = rag().astream(QUESTION, config)
    assert await anext(stream) == "Ada"
    await stream.aclose()
    async with asyncio.timeout(10):
        while captured.run.status == "open":  # LangChain reports it a moment later
            await asyncio.sleep(0)
    assert (captured.run.status, captured.run.answer) == ("cancelled", "Ada")
    assert [len(passages) for passages in captured.read] == [2]


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_stream_that_is_closed_has_the_part_that_was_given_out_and_what_was_read(captured, config, tokens):
    stream = rag(ListRetriever() | (lambda found: found[:1])).stream(QUESTION, config)
    given = "".join(next(stream) for _ in range(tokens))
    stream.close()
    assert (captured.run.status, captured.run.answer) == ("cancelled", given)
    assert [len(passages) for passages in captured.read] == [1]


def test_an_answer_that_a_chain_cuts_itself_is_whole(captured, config):
    def first(tokens):
        yield next(tokens)

    assert "".join((rag() | RunnableGenerator(first)).stream(QUESTION, config)) == "Ada"
    assert (captured.run.status, captured.run.answer) == ("ok", "Ada")
    assert [len(passages) for passages in captured.read] == [2]


def test_a_model_whose_stream_a_chain_closes_has_replied_what_it_gave(captured, config):
    retriever, model = ListRetriever(), says(ANSWER)

    def answer(question):
        context = "\n".join(one.page_content for one in retriever.invoke(question)[:1])
        stream = model.stream(f"{context}\n{question}")
        word = next(stream).content
        stream.close()
        return f"It was {word}."

    RunnableLambda(answer).invoke(QUESTION, config)
    assert [len(passages) for passages in captured.read] == [1]


def test_a_batch_is_one_run_a_question(captured, config):
    questions = [f"question {n}" for n in range(6)]
    rag().batch(questions, config)
    assert sorted(run.question for run in captured.runs) == questions
    for run in captured.runs:
        assert [step.query for step in run.steps] == [run.question]
        assert run.answer == ANSWER


def test_a_chain_that_retrieves_nothing_is_no_run(captured, config):
    (ChatPromptTemplate.from_template("{q}") | says("hi")).invoke({"q": "hello"}, config)
    assert captured.events == []


async def test_a_cancelled_chain_takes_its_retrieval_with_it(captured, config):
    waiting = asyncio.Event()
    chain = rag(ListRetriever(gate=asyncio.Event(), waiting=waiting.set))
    task = asyncio.create_task(chain.ainvoke(QUESTION, config))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (captured.run.status, captured.step.status) == ("cancelled", "cancelled")


async def test_a_retrieval_that_timed_out_inside_a_run_that_went_on(captured, config):
    async def impatient(query):
        slow = asyncio.ensure_future(ListRetriever(gate=asyncio.Event()).ainvoke(query))
        await asyncio.wait([slow], timeout=0.01)
        slow.cancel()
        return await ListRetriever(shelf="quick").ainvoke(query)

    await (RunnableLambda(impatient) | RunnableLambda(lambda found: "Ada")).ainvoke(QUESTION, config)
    assert [(step.status, len(step.passages)) for step in captured.run.steps] == [("cancelled", 0), ("ok", 2)]
    assert (captured.run.status, captured.run.answer) == ("ok", "Ada")


class Cut(BaseDocumentCompressor):
    """Keeps the first document."""

    def compress_documents(self, documents, query, callbacks=None):
        return documents[:1]


NESTED = {
    "compression": (
        lambda: ContextualCompressionRetriever(base_compressor=Cut(), base_retriever=ListRetriever(count=3)),
        1,
        [3],
    ),
    "ensemble": (
        lambda: EnsembleRetriever(
            retrievers=[ListRetriever(shelf="a"), ListRetriever(shelf="b")], weights=[0.5, 0.5]
        ),
        4,
        [2, 2],
    ),
    "multi-query": (
        lambda: MultiQueryRetriever.from_llm(ListRetriever(), says("one\ntwo\nthree")),
        6,
        [2, 2, 2],
    ),
    "compressed ensemble": (
        lambda: ContextualCompressionRetriever(
            base_compressor=Cut(),
            base_retriever=EnsembleRetriever(
                retrievers=[ListRetriever(shelf="a"), ListRetriever(shelf="b")], weights=[0.5, 0.5]
            ),
        ),
        1,
        [4, 2, 2],
    ),
}


@pytest.mark.parametrize("around", ["bare", "chain", "run"])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
@pytest.mark.parametrize("kind", NESTED)
async def test_nested_retrievers_are_one_step_with_parts(captured, recorder, config, kind, mode, around):
    make, found, parts = NESTED[kind]
    retriever = make()
    target = rag(retriever) if around == "chain" else retriever
    with RunHandle(recorder, QUESTION) if around == "run" else nullcontext():
        if mode == "invoke":
            target.invoke(QUESTION, config)
        else:
            await target.ainvoke(QUESTION, config)
    step = captured.step
    assert (step.query, step.status, len(step.passages)) == (QUESTION, "ok", found)
    assert sorted(len(sub.passages) for sub in step.sub_steps) == sorted(parts)
    assert all(sub.status == "ok" for sub in step.sub_steps)


class SilentWrapper(BaseRetriever):
    """Calls its inner retriever without handing on its callbacks."""

    inner: BaseRetriever

    def _get_relevant_documents(self, query, *, run_manager):
        return self.inner.invoke(query)[:1]


@pytest.mark.parametrize("around", ["bare", "chain"])
def test_wrapper_that_hands_on_no_callbacks_is_recorded_beside_its_inner_retriever(captured, rg, around):
    retriever = SilentWrapper(inner=ListRetriever(count=3))
    instrument(rg)  # else its inner retriever has no callbacks at all, outside of chains
    (rag(retriever) if around == "chain" else retriever).invoke(QUESTION)
    uninstrument()
    steps = [step for run in captured.runs for step in run.steps]
    assert [(step.status, step.sub_steps) for step in steps] == [("ok", [])] * 2
    assert len(captured.runs) == (1 if around == "chain" else 2)


def test_a_part_that_fails_fails_its_step(captured, config):
    broken = ListRetriever(fault=lambda query: KeyError("gone"))
    ensemble = EnsembleRetriever(retrievers=[ListRetriever(), broken], weights=[0.5, 0.5])
    with pytest.raises(KeyError):
        ensemble.invoke(QUESTION, config)
    step = captured.step
    assert step.status == "error"
    assert sorted(sub.status for sub in step.sub_steps) == ["error", "ok"]
