"""What LangChain and LangGraph agents of the usual kinds read: of the retrieved documents, those in a later prompt."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from support.langchain_agents import ANSWER, QUESTION
from support.langchain_parts import ListRetriever, says

from ragguard.guard import DistractorGuard, TopUtility
from ragguard_langchain import DistractorFilter

PROMPT = ChatPromptTemplate.from_template("{context}\nQuestion: {input}")
LONG = [
    f"{name} Berg is said to be the founder of a firm in Oslo that makes {product} for people of the region."
    for name, product in [("Ada", "ships"), ("Clara", "lamps"), ("Dora", "ropes"), ("Emma", "clocks")]
]


class Shelf(ListRetriever):
    def _get_relevant_documents(self, query, **_):
        return [Document(text, id=str(n)) for n, text in enumerate(LONG)]

    async def _aget_relevant_documents(self, query, **_):
        return self._get_relevant_documents(query)


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


def graph(*between: Any, context=lambda found: "\n\n".join(one.page_content for one in found), model=None):
    """Retrieve, nodes from documents to documents, and generate, each a node of its own."""
    built = StateGraph(State)
    nodes = [lambda state: {"documents": Shelf().invoke(state["question"])}]
    nodes += [lambda state, one=one: {"documents": one(state["documents"])} for one in between]

    def generate(state):
        given = {"context": context(state["documents"]), "input": state["question"]}
        return {"answer": (PROMPT | (model or says(ANSWER))).invoke(given).text}

    for number, node in enumerate([*nodes, generate]):
        built.add_node(str(number), node)
        built.add_edge(START if number == 0 else str(number - 1), str(number))
    built.add_edge(str(len(nodes)), END)
    return built.compile()


def read(captured, config, built) -> tuple[list[str], str]:
    """The texts of the passages that count as read, of all four, and whether that is unknown."""
    built.invoke({"question": QUESTION}, config)
    (step,) = captured.run.steps
    assert [one.text for one in step.candidates] == LONG
    return [one.text for one in step.passages], step.metadata.get("ragguard.delivered", "")


def test_documents_that_a_grading_model_rejected_were_not_read(captured, config):
    def graded(found):
        verdicts = says("no", "yes", "yes", "no")
        return [one for one in found if verdicts.invoke(f"Relevant? {one.page_content}").text == "yes"]

    assert read(captured, config, graph(graded)) == (LONG[1:3], "")
    assert captured.run.steps[0].metadata["ragguard.judged_only"] == 2


def test_guard_in_a_node_of_its_own_decides_what_is_read(captured, config):
    guard = DistractorFilter(DistractorGuard("nano", policies=[TopUtility(1)], budget_ms=60_000))
    texts, unknown = read(captured, config, graph(lambda found: guard.compress_documents(found, QUESTION)))
    assert (len(texts), unknown) == (1, "")
    assert [one.text for one in captured.run.steps[0].decision.kept] == texts
