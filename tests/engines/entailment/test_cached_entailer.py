"""A pair is compared once; what is known costs nothing, and says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.reader import TableEntailer, reader, two_hops

from ragguard.engines.connected_entailer import ConnectedEntailer, connect_entailer
from ragguard.engines.entailer import Entailments, Pair
from ragguard.errors import EngineProtocolError, EngineTimeout
from ragguard.records import Usage
from ragguard.scorers.settings import ScoringSettings

ONE, OTHER, THIRD = (Pair("who?", "Ada", text) for text in ("Bo", "Cy", "Di"))


async def test_known_pair_is_not_asked_again_and_counts_as_cached():
    asked = TableEntailer()
    cached = connect_entailer(asked)
    first = await cached.entail([ONE, OTHER, ONE])
    again = await cached.entail([OTHER, THIRD, ONE])
    assert asked.pairs == [ONE, OTHER, THIRD]
    assert first.p.shape == (3, 3)
    assert np.array_equal(again.p[[2, 0]], first.p[:2])
    assert (again.usage.prompts, again.usage.cached, again.usage.requests) == (3, 2, 1)
    assert (await cached.entail([THIRD])).usage == Usage(prompts=1, cached=1)


async def test_a_failure_is_not_kept():
    asked = TableEntailer(fault=EngineTimeout("slow"))
    cached = connect_entailer(asked)
    with pytest.raises(EngineTimeout):
        await cached.entail([ONE])
    asked.fault = None
    assert len(await cached.entail([ONE])) == 1


async def test_wrong_reply_of_an_entailer_is_refused_and_not_kept():
    asked = TableEntailer()
    asked.entail = lambda pairs, **more: answer(Entailments(np.zeros((1, 2))))

    async def answer(reply):
        return reply

    with pytest.raises(EngineProtocolError, match="shape"):
        await connect_entailer(asked).entail([ONE])


async def test_the_least_recently_used_pairs_go_first():
    asked = TableEntailer()
    cached = ConnectedEntailer(lambda: asked, most_pairs=2)
    for pairs in ([ONE], [OTHER], [ONE], [THIRD], [ONE], [OTHER]):
        await cached.entail(pairs)
    assert asked.pairs == [ONE, OTHER, THIRD, OTHER]


async def test_cuts_and_mass_are_kept_with_the_answer():
    asked = TableEntailer(mass=0.4)
    relation = asked.entail

    async def cutting(pairs, **more):
        reply = await relation(pairs)
        return Entailments(reply.p, reply.usage, reply.mass, {len(pairs) - 1: 7})

    asked.entail = cutting
    cached = connect_entailer(asked)
    await cached.entail([ONE, OTHER])
    again = await cached.entail([OTHER, ONE])
    assert again.truncated == {0: 7}
    assert again.mass.tolist() == [0.4, 0.4]


async def test_a_ragguards_own_entailer_compares_no_pair_twice():
    asked = TableEntailer()
    pipeline = ScoringSettings(engine=reader(), entailer=asked, scorers=("belief",)).build()
    run = two_hops()
    for steps in (1, 2):
        await pipeline.results_so_far(replace(run, steps=run.steps[:steps]))
    await pipeline.results(run)
    assert asked.pairs
    assert len(asked.pairs) == len(set(asked.pairs))
