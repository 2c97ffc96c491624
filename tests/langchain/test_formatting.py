"""The text that the model reads of a document: as the document prompt of a stuff chain writes it."""

from __future__ import annotations

import pytest
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnablePassthrough
from support.langchain_agents import ANSWER, QUESTION
from support.langchain_parts import Shelf, says

from ragguard_langchain import RagGuardCallback

PROMPT = ChatPromptTemplate.from_template("{context} {input}")


def stuffed(template, count=2):
    document_prompt = PromptTemplate.from_template(template)
    chain = create_stuff_documents_chain(says(ANSWER), PROMPT, document_prompt=document_prompt)
    return create_retrieval_chain(Shelf(count=count), chain)


def texts(captured):
    (step,) = captured.run.steps
    return [passage.text for passage in step.passages], [passage.text for passage in step.candidates]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_stuff_chains_document_prompt_is_what_the_model_reads(captured, config, mode, count):
    chain = stuffed("Title: {source}\n{page_content}", count)
    if mode == "invoke":
        chain.invoke({"input": QUESTION}, config)
    else:
        await chain.ainvoke({"input": QUESTION}, config)
    bare = [f"shelf {n} about {QUESTION}" for n in range(count)]
    assert texts(captured) == ([f"Title: shelf\n{text}" for text in bare], bare)
    assert [passage.id for passage in captured.run.steps[0].passages] == [f"shelf-{n}" for n in range(count)]


def test_the_bare_texts_change_nothing(captured, config):
    stuffed("{page_content}").invoke({"input": QUESTION}, config)
    assert captured.run.steps[0].passages is captured.run.steps[0].candidates


def test_a_chain_by_hand_that_formats_some_of_them(captured, config):
    def format_docs(found):
        return "\n\n".join(f"[{n}] {one.page_content}" for n, one in enumerate(found[:2], 1))

    chain = {"context": Shelf(count=3) | format_docs, "input": RunnablePassthrough()} | PROMPT | says(ANSWER)
    chain.invoke(QUESTION, config)
    got, candidates = texts(captured)
    assert got == [f"[{n + 1}] shelf {n} about {QUESTION}" for n in range(2)]
    assert len(candidates) == 3


def test_text_of_holds(captured, rg):
    config = {"callbacks": [RagGuardCallback(rg, text_of=lambda one: f"<{one.page_content}>")]}
    stuffed("Title: {source}\n{page_content}").invoke({"input": QUESTION}, config)
    assert texts(captured)[0] == [f"<shelf {n} about {QUESTION}>" for n in range(2)]
