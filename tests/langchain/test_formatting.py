"""The text that the model reads of a document: as the document prompt of a stuff chain writes it."""

from __future__ import annotations

import pytest
from langchain_classic.chains import LLMChain, RetrievalQA, StuffDocumentsChain, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from support.guards import judging
from support.langchain_agents import ANSWER, QUESTION
from support.langchain_parts import ListRetriever, says
from support.polling import eventually
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard_langchain import RagGuardCallback

TITLED = "Title: {source}\n{page_content}"
PROMPT = ChatPromptTemplate.from_template("{context} {input}")


def stuffed(template, count=2):
    document_prompt = PromptTemplate.from_template(template)
    chain = create_stuff_documents_chain(says(ANSWER), PROMPT, document_prompt=document_prompt)
    return create_retrieval_chain(ListRetriever(count=count), chain)


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
    read = [f"Title: shelf\nshelf {n} about {QUESTION}" for n in range(count)]
    assert texts(captured) == (read, read)
    assert [passage.id for passage in captured.run.steps[0].passages] == [f"shelf-{n}" for n in range(count)]


def test_the_bare_texts_change_nothing(captured, config):
    stuffed("{page_content}").invoke({"input": QUESTION}, config)
    assert captured.run.steps[0].passages is captured.run.steps[0].candidates


def test_a_chain_by_hand_that_formats_some_of_them(captured, config):
    def format_docs(found):
        return "\n\n".join(f"[{n}] {one.page_content}" for n, one in enumerate(found[:2], 1))

    chain = (
        {"context": ListRetriever(count=3) | format_docs, "input": RunnablePassthrough()}
        | PROMPT
        | says(ANSWER)
    )
    chain.invoke(QUESTION, config)
    got, candidates = texts(captured)
    assert got == [f"[{n + 1}] shelf {n} about {QUESTION}" for n in range(2)]
    assert candidates == [*got, f"shelf 2 about {QUESTION}"]


def test_text_of_holds(captured, rg):
    config = {"callbacks": [RagGuardCallback(rg, text_of=lambda one: f"<{one.page_content}>")]}
    stuffed("Title: {source}\n{page_content}").invoke({"input": QUESTION}, config)
    assert texts(captured)[0] == [f"<shelf {n} about {QUESTION}>" for n in range(2)]


def classic_stuff_chain(template, count=2):
    """Question answering by the classic chain that formats documents without a call of its own."""
    llm_chain = LLMChain(llm=says(ANSWER), prompt=PromptTemplate.from_template("{context} {question}"))
    stuff = StuffDocumentsChain(
        llm_chain=llm_chain,
        document_prompt=PromptTemplate.from_template(template),
        document_variable_name="context",
    )
    return RetrievalQA(retriever=ListRetriever(count=count), combine_documents_chain=stuff)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
async def test_a_classic_stuff_chains_document_prompt_is_what_the_model_reads(captured, config, mode):
    chain = classic_stuff_chain("Title: {source}\n{page_content}")
    if mode == "invoke":
        chain.invoke({"query": QUESTION}, config)
    else:
        await chain.ainvoke({"query": QUESTION}, config)
    read = [f"Title: shelf\nshelf {n} about {QUESTION}" for n in range(2)]
    assert texts(captured) == (read, read)


@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_formatted_document_is_judged_once(tmp_path, store):
    engine = ScriptedEngine(label=judging)
    rg = RagGuard(
        engine=engine, scorers=("utility",), store=tmp_path / "runs.db" if store == "file" else None,
        when="run",  # a document that is judged before the chain formats it: see the next test
    )  # fmt: skip
    stuffed("Title: {source}\n{page_content}").invoke(
        {"input": QUESTION}, {"callbacks": [RagGuardCallback(rg)]}
    )
    assert rg.flush(timeout=30)
    (run,) = rg.runs()
    judged = [score for score in rg.scores(run.id) if score.name == "utility"]
    prompts = [prompt for one in engine.calls for prompt in one.prompts]
    rg.close()
    assert len(judged) == 2
    assert len(prompts) == 4
    assert all("Title: shelf" in str(prompt) for prompt in prompts)


@pytest.mark.parametrize("judged_before", [False, True], ids=["formatted at once", "judged before"])
def test_live_scores_of_a_formatted_document_end_as_those_of_what_the_model_read(judged_before):
    """A step is scored as it ends, which is before a chain formats its documents: where the chain takes its time, the
    bare texts are judged first, as provisional scores, and the formatted ones once."""
    engine = ScriptedEngine(label=judging)
    rg = RagGuard(engine=engine, scorers=("utility",), store=None)

    def provisional():
        return [score for run in rg.runs() for score in rg.scores(run.id) if score.provisional]

    def hold(found):
        if judged_before:
            eventually(lambda: len(provisional()) >= 2)
        return found

    def judge_what_is_formatted(given):
        eventually(lambda: "Title: shelf" in str(engine.calls))
        return given

    stuff = create_stuff_documents_chain(
        judge_what_is_formatted | says(ANSWER), PROMPT, document_prompt=PromptTemplate.from_template(TITLED)
    )
    retriever = (lambda given: given["input"]) | ListRetriever() | hold
    create_retrieval_chain(retriever, stuff).invoke(
        {"input": QUESTION}, {"callbacks": [RagGuardCallback(rg)]}
    )
    assert rg.flush(timeout=30)
    (run,) = rg.runs()
    scores = [score for score in rg.scores(run.id) if score.name == "utility"]
    prompts = [str(prompt) for one in engine.calls for prompt in one.prompts]
    rg.close()
    assert [score.provisional for score in scores] == [False, False]
    formatted = [one for one in prompts if "Title: shelf" in one]
    assert len(formatted) == len({*formatted}) == 4
    assert len(prompts) == 8 or not judged_before
    bare = [one for one in prompts if one not in formatted]
    assert len(bare) == len({*bare})


def test_the_handle_of_a_run_shows_the_candidates_as_the_model_reads_them():
    rg = RagGuard(engine=ScriptedEngine(), scorers=())
    with rg.run(QUESTION) as run:
        stuffed("Title: {source}\n{page_content}").invoke(
            {"input": QUESTION}, {"callbacks": [RagGuardCallback(rg)]}
        )
        (step,) = run.steps
    rg.close()
    assert step.candidates == step.passages
    assert step.candidates[0].text.startswith("Title: shelf")


def test_redaction_meets_both_texts_of_a_formatted_document(tmp_path):
    rg = RagGuard(
        engine=ScriptedEngine(),
        scorers=(),
        store=tmp_path / "runs.db",
        redact=lambda text: text.replace("shelf", "*"),
    )
    stuffed("Title: {source}\n{page_content}").invoke(
        {"input": QUESTION}, {"callbacks": [RagGuardCallback(rg)]}
    )
    assert rg.flush(timeout=30)
    (step,) = rg.runs()[0].steps
    rg.close()
    assert [one.text for one in step.candidates] == [f"Title: *\n* {n} about {QUESTION}" for n in range(2)]
    assert step.candidates == step.passages


@pytest.mark.parametrize("mode", ["invoke", "stream"])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_documents_dropped_before_the_default_stuff_chain_were_not_read(captured, config, kept, mode):
    stuff = create_stuff_documents_chain(says(ANSWER), PROMPT)
    fewer = (lambda given: given["input"]) | ListRetriever(count=3) | (lambda found: found[:kept])
    chain = RunnablePassthrough.assign(context=fewer) | stuff
    given = {"input": QUESTION}
    chain.invoke(given, config) if mode == "invoke" else [*chain.stream(given, config)]
    assert texts(captured)[0] == [f"shelf {n} about {QUESTION}" for n in range(kept)]
    assert len(texts(captured)[1]) == 3


def top2(found):
    return "\n\n".join(one.page_content for one in found[:2])


def cut(found):
    return "".join(f"<doc>{one.page_content[:9]}</doc>" for one in found)


def summary(found):
    return (
        "Of the words that were retrieved none stands here, since others say the same at greater length. " * 4
    )


@pytest.mark.parametrize("mode", ["invoke", "stream"])
@pytest.mark.parametrize("function", [top2, lambda found: top2(found)], ids=["top2", "lambda"])
def test_a_formatter_of_any_name_whose_text_is_in_the_prompt(captured, config, function, mode):
    chain = (
        {"context": ListRetriever(count=3) | function, "input": RunnablePassthrough()} | PROMPT | says(ANSWER)
    )
    chain.invoke(QUESTION, config) if mode == "invoke" else [*chain.stream(QUESTION, config)]
    assert texts(captured)[0] == [f"shelf {n} about {QUESTION}" for n in range(2)]
    assert len(texts(captured)[1]) == 3


def test_a_function_that_makes_a_mapping_with_the_text_of_some(captured, config):
    def built(given):
        return {"context": top2(given["found"]), "input": given["input"]}

    chain = {"found": ListRetriever(count=3), "input": RunnablePassthrough()} | RunnableLambda(built)
    (chain | PROMPT | says(ANSWER)).invoke(QUESTION, config)
    assert texts(captured)[0] == [f"shelf {n} about {QUESTION}" for n in range(2)]
    assert len(texts(captured)[1]) == 3


def test_documents_that_are_a_variable_of_a_prompt_themselves(captured, config):
    chain = {"context": ListRetriever(count=3) | (lambda found: found[:2]), "input": RunnablePassthrough()}
    (chain | PROMPT | says(ANSWER)).invoke(QUESTION, config)
    assert texts(captured)[0] == [f"shelf {n} about {QUESTION}" for n in range(2)]


def test_documents_beside_the_variables_of_a_prompt_are_not_in_it(captured, config):
    kept = {
        "found": lambda one: one["found"],
        "context": lambda one: top2(one["found"]),
        "input": lambda one: QUESTION,
    }
    chain = {"found": ListRetriever(count=3)} | RunnablePassthrough.assign(**kept)
    (chain | PROMPT | says(ANSWER)).invoke(QUESTION, config)
    assert texts(captured)[0] == [f"shelf {n} about {QUESTION}" for n in range(2)]


def test_two_retrievals_of_which_one_text_is_made(captured, config):
    def fused(found):
        return "\n".join(one[0].page_content for one in found.values())

    both = {"a": ListRetriever(shelf="a", count=3), "b": ListRetriever(shelf="b", count=3)}
    chain = {"context": both | RunnableLambda(fused), "input": RunnablePassthrough()}
    (chain | PROMPT | says(ANSWER)).invoke(QUESTION, config)
    got = sorted(passage.text for step in captured.run.steps for passage in step.passages)
    assert got == [f"a 0 about {QUESTION}", f"b 0 about {QUESTION}"]


def test_of_a_short_text_that_cuts_them_nothing_is_known(captured, config):
    chain = {"context": ListRetriever(count=3) | cut, "input": RunnablePassthrough()} | PROMPT | says(ANSWER)
    chain.invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_of_a_text_that_holds_none_of_them_nothing_is_known(captured, config):
    chain = (
        {"context": ListRetriever(count=3) | summary, "input": RunnablePassthrough()} | PROMPT | says(ANSWER)
    )
    chain.invoke(QUESTION, config)
    (step,) = captured.run.steps
    assert (len(step.passages), step.metadata["ragguard.delivered"]) == (3, "unknown")


def test_what_a_model_wrote_of_documents_says_nothing_of_what_it_read(captured, config):
    first = PROMPT | says(f"shelf 0 about {QUESTION}")

    def condensed(found):
        return first.invoke({"context": str(found), "input": ""}).content

    chain = (
        {"context": ListRetriever(count=3) | condensed, "input": RunnablePassthrough()}
        | PROMPT
        | says(ANSWER)
    )
    chain.invoke(QUESTION, config)
    assert len(captured.run.steps[0].passages) == 3


def test_what_an_earlier_prompt_showed_was_read(captured, config):
    def loop(query):
        found = ListRetriever(count=3).invoke(query)
        for some in (found[:2], found[2:]):
            text = RunnableLambda(top2).invoke(some)
            (PROMPT | says(ANSWER)).invoke({"context": text, "input": query})
        return ANSWER

    RunnableLambda(loop).invoke(QUESTION, config)
    assert len(texts(captured)[0]) == 3
