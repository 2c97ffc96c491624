"""nano behind a real vLLM server scores a run as nano in this process does, in as few requests."""

import math

import pytest

from ragguard import world
from ragguard.engines.connect import connect
from ragguard.records import Score, Usage
from ragguard.scorers.pipeline import USUAL, ScoringPipeline

pytestmark = pytest.mark.vllm


async def scored(engine, the_run):
    pipeline = ScoringPipeline(connect(engine), scorers=(*USUAL, "grades"))
    try:
        return await pipeline.results(the_run)
    finally:
        await pipeline.aclose()


async def test_a_served_nano_says_what_nano_says(vllm_server):
    case = world.cases(1, seed=21, hops=2)[0]
    the_run = world.make_run(case, useless_steps=1)
    served = await scored(f"{vllm_server.url}#{vllm_server.model}", the_run)
    inside = {score.key[:6]: score for score in await scored("nano", the_run)}
    assert all(isinstance(result, Score) for result in served), served
    assert {score.prompts for score in served} == {"nano/2"}
    for score in served:
        other = inside[score.key[:6]]
        if score.name in ("p_abstain", "p_relevant"):
            # Its kernels compute in fewer bits.
            assert score.value == pytest.approx(other.value, abs=3e-2), score.name
        elif score.name == "answerability":
            assert score.expectation == pytest.approx(other.expectation, abs=0.15)
        elif score.name.startswith(("seper", "delta_seper")):
            assert abs(score.value - other.value) <= 4 * math.hypot(score.stderr, other.stderr) + 1e-9
    assert sum((score.usage for score in served), Usage()).requests <= 20
