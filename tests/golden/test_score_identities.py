"""What tells one score from another, and the values, of a known story under every scorer.

A store keeps one score of each key: where a fingerprint changes without need, everything is scored anew.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest
from support.golden import compare, compare_lines
from support.reader import (
    FALSE,
    FIRM,
    FIRM_QUERY,
    FOUNDER,
    FOUNDER_QUERY,
    NEAR,
    NOISE,
    TableEntailer,
    reader,
    run,
    step,
)

from ragguard import Passage, RagGuard
from ragguard.engines.layers import Cache, Coalesce, Retry
from ragguard.records import Failure

SCORERS = ("belief", "utility", "coverage", "grades")


def story(**more):
    """A run of two hops, the first one cut to the passage that matters, with a graded pool."""
    return run(
        step(FIRM_QUERY, [FIRM], candidates=[NEAR, FIRM], id="first", tool="search"),
        step(FOUNDER_QUERY, [FALSE, FOUNDER, NOISE], id="second"),
        id="story",
        pool=[Passage(FIRM, grade=5), Passage(NEAR, grade=2)],
        **more,
    )


async def scored(**settings):
    engine = Cache(Coalesce(Retry(reader())))  # in how many requests a call goes depends on the engine's pace
    rg = RagGuard(engine=engine, entailer=TableEntailer(), scorers=SCORERS, store=None, **settings)
    try:
        return {
            "gold": await rg.score(story()),
            "support": await rg.score(story(references=None)),
        }
    finally:
        rg.close()


async def test_versions_of_all_scorers():
    found = {}
    for prompts in ("default", "nano"):
        scores = (await scored(prompts=prompts))["gold"]
        found[prompts] = sorted({(one.scorer, one.version, one.engine, one.prompts) for one in scores})
    compare("scorer-fingerprints", found)


@pytest.mark.parametrize("source", ["gold", "support"])
async def test_keys_and_values_of_all_scores(source):
    results = (await scored())[source]
    compare_lines(f"scores-{source}", map(plain, [*results, *results.failures]))


def plain(result):
    """A score or failure without times; the digits that arithmetic leaves open are rounded away."""
    data = asdict(result)
    if isinstance(result, Failure):
        del data["occurred_ns"]
        return data
    usage = result.usage
    rounded = {
        name: round(data[name], 9) for name in ("value", "stderr", "expectation") if data[name] is not None
    }
    return {
        "key": list(result.key),
        "level": result.level,
        "passage_id": result.passage_id,
        "label": result.label,
        "explanation": result.explanation,
        "reference_source": result.reference_source,
        "metadata": result.metadata,
        "usage": [usage.requests, usage.prompts, usage.prompt_tokens, usage.output_tokens, usage.cached],
        **rounded,
    }
