"""From LlamaIndex to scores, through a whole RagGuard."""

from __future__ import annotations

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import QueryEngineTool
from support.llamaindex_parts import Says, Shelf, call, scripted
from support.scripted_engine import ScriptedEngine

from ragguard import RagGuard
from ragguard_llamaindex import instrument, uninstrument

# LlamaIndex's agents use what pydantic calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


@pytest.fixture
def rg(tmp_path):
    rg = RagGuard(
        engine=ScriptedEngine(label=lambda text, label: 0.4), scorers=("utility",), store=tmp_path / "runs.db"
    )
    instrument(rg)
    yield rg
    uninstrument()
    rg.close()


async def test_an_agents_hops_are_scored_in_the_run_that_the_user_opened(rg):
    engine = RetrieverQueryEngine.from_args(Shelf(), llm=Says(text="Nordlys"))
    tool = QueryEngineTool.from_defaults(engine, name="ask")
    model = scripted(call("ask", input="firm in Oslo"), call("ask", input="founder of Nordlys"), "Ada Berg")
    async with rg.run("Who founded the firm in Oslo?", references=["Ada Berg"]) as run:
        await FunctionAgent(tools=[tool], llm=model).run(user_msg="Who founded it?")
    assert await rg.aflush(timeout=30)
    (got,) = rg.runs()
    assert (got.id, got.question, got.references, got.answer) == (
        run.id, "Who founded the firm in Oslo?", ["Ada Berg"], "Ada Berg",
    )  # fmt: skip
    assert [(step.query, step.tool) for step in got.steps] == [
        ("firm in Oslo", "ask"),
        ("founder of Nordlys", "ask"),
    ]
    udcg = {score.step_id for score in rg.scores(run.id) if score.name == "udcg"}
    assert udcg == {step.id for step in got.steps}


def test_bare_retrievals_are_scored_too(rg):
    for number in range(3):
        Shelf().retrieve(f"question {number}")
    assert rg.flush(timeout=30)
    assert [run.question for run in rg.runs()] == ["question 0", "question 1", "question 2"]
    assert all(any(score.name == "udcg" for score in rg.scores(run.id)) for run in rg.runs())
