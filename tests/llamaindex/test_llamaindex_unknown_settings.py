"""Mistyped settings of the classes that are LlamaIndex's own models, which ignore unknown names."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.callbacks import CallbackManager
from llama_index.core.tools import RetrieverTool
from support.guards import guarding
from support.llamaindex_parts import ListRetriever, scripted

from ragguard.errors import UnknownName
from ragguard_llamaindex import AdvisedFunctionAgent, DistractorPostprocessor


@pytest.mark.parametrize(
    ("mistyped", "meant"), [({"max_hop": 3}, "max_hops"), ({"search_tool": ["search"]}, "search_tools")]
)
def test_an_unknown_setting_of_an_agent_is_refused(mistyped, meant):
    with pytest.raises(
        UnknownName, match=rf"argument of AdvisedFunctionAgent: got '\w+'; allowed: {meant}, .*timeout"
    ):
        AdvisedFunctionAgent(tools=[], llm=scripted("done"), **mistyped)


def test_the_settings_of_the_framework_and_of_its_workflows_are_taken():
    tool = RetrieverTool.from_defaults(ListRetriever("search"), name="search")
    agent = AdvisedFunctionAgent(
        name="mine", description="d", tools=[tool], llm=scripted("done"), timeout=3.0, verbose=False,
        num_concurrent_runs=2, disable_validation=True, initial_tool_choice="search", max_hops=2,
    )  # fmt: skip
    assert (agent.name, agent.initial_tool_choice) == ("mine", "search")
    assert AgentWorkflow(agents=[agent]).agents["mine"] is agent


def test_a_subclass_of_an_agent_with_a_field_of_its_own():
    class Mine(AdvisedFunctionAgent):
        motto: str = ""

    assert Mine(tools=[], llm=scripted("done"), motto="read more").motto == "read more"


def test_an_unknown_setting_of_a_postprocessor_is_refused():
    with pytest.raises(UnknownName, match=r"DistractorPostprocessor: got 'textof'; allowed: text_of, "):
        DistractorPostprocessor(guarding(), textof=str)


def test_a_postprocessor_is_made_of_what_it_was_written_as():
    guard, manager = guarding(), CallbackManager()
    made = DistractorPostprocessor(guard, callback_manager=manager)
    written = made.to_dict()
    assert written["class_name"] == "DistractorPostprocessor"
    assert DistractorPostprocessor.from_dict(written, guard=guard).guard is guard
    assert DistractorPostprocessor.model_validate({**made.model_dump(), "guard": guard}).guard is guard
    assert made.model_copy().callback_manager is manager
