"""Settings of the classes that are models of LlamaIndex: its own are taken, a mistyped one is refused by name."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.callbacks import CallbackManager
from llama_index.core.tools import RetrieverTool
from pydantic import ValidationError
from support.guards import guarding
from support.llamaindex_parts import ListRetriever, scripted

from ragguard_llamaindex import AdvisedFunctionAgent, DistractorPostprocessor


def test_unknown_setting_is_refused_by_name():
    with pytest.raises(ValidationError, match=r"AdvisedFunctionAgent\nmax_hop"):
        AdvisedFunctionAgent(tools=[], llm=scripted("done"), max_hop=3)
    with pytest.raises(ValidationError, match=r"DistractorPostprocessor\ntextof"):
        DistractorPostprocessor(guarding(), textof=str)


def test_the_settings_of_the_framework_and_of_its_workflows_are_taken():
    tool = RetrieverTool.from_defaults(ListRetriever("search"), name="search")
    agent = AdvisedFunctionAgent(
        name="mine", description="d", tools=[tool], llm=scripted("done"), timeout=3.0, verbose=False,
        num_concurrent_runs=2, initial_tool_choice="search", max_hops=2,
    )  # fmt: skip
    assert (agent.name, agent.initial_tool_choice) == ("mine", "search")
    assert AgentWorkflow(agents=[agent]).agents["mine"] is agent


def test_a_subclass_of_an_agent_with_a_field_of_its_own():
    class Mine(AdvisedFunctionAgent):
        motto: str = ""

    assert Mine(tools=[], llm=scripted("done"), motto="read more").motto == "read more"


def test_a_postprocessor_is_made_of_what_it_was_written_as():
    guard, manager = guarding(), CallbackManager()
    made = DistractorPostprocessor(guard, callback_manager=manager)
    written = made.to_dict()
    assert written["class_name"] == "DistractorPostprocessor"
    assert DistractorPostprocessor.from_dict(written, guard=guard).guard is guard
    assert made.model_copy().callback_manager is manager
