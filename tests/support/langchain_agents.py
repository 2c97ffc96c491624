"""Agents over a shelf, told what to do."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import create_retriever_tool
from support.langchain_parts import ListRetriever, call, says

QUESTION = "Who founded the firm based in Oslo?"
ANSWER = "Ada Berg"


def search_tool(retriever=None, name="search"):
    return create_retriever_tool(
        retriever or ListRetriever(), name, "Searches.", response_format="content_and_artifact"
    )


def agent(*turns, tools=None, **options):
    return create_agent(says(*turns), tools or [search_tool()], **options)


def asked(question=QUESTION):
    return {"messages": [HumanMessage(question)]}


def hops(run):
    return [(step.query, step.turn, step.status) for step in sorted(run.steps, key=lambda step: step.query)]


SEQUENTIAL = (call("search", query="1 firm in Oslo"), call("search", query="2 founder of Fjord"), ANSWER)
PARALLEL = ((call("search", query="1a"), call("search", query="1b")), call("search", query="2"), ANSWER)
