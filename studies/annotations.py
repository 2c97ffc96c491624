"""Annotations of every passage of a pool by the reader and the judge; each question is asked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ragguard.engines.base import Engine
from ragguard.engines.prompts import load_prompts
from ragguard.errors import EngineProtocolError
from ragguard.lab.validation.contexts import Context, Progress, Scored, score_contexts, silent
from ragguard.metrics.arrays import Floats
from ragguard.metrics.distraction import utility
from ragguard.scorers.probes import abstention
from studies.erag import with_downstream_relevance
from studies.pools import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """A pool with its annotations: for each schema one value a passage, in the pool's order."""

    pool: Pool
    relevance: Floats
    """The world's own relevance."""
    p_relevant: Floats
    """The relevance by the judge, who sees the references."""
    p_abstain: Floats
    """The abstention of the reader, given the passage alone."""
    utility: Floats
    """The utility with the world's relevance, as every other metric has it."""
    judged: Floats
    """Utility with the judge's relevance, which is the one that is scored where the truth is unknown."""
    by_hop: Floats
    """Utility for the query of the hop that found the passage, the best where several did."""
    judged_by_hop: Floats
    """Utility by hop with the judge's relevance, references unseen: the number that an agent's run gets."""
    erag: Floats
    """ROUGE-L of the reader's answer from the passage alone; nan where it was not asked for."""
    p_answer: Floats
    """The probability of the reference itself; nan where it was not asked for, or the engine cannot tell."""


def unknown(pool: Pool) -> Annotated:
    """Returns a pool whose annotations are all nan, for studies that ask for none."""
    nothing = np.full(len(pool.passages), np.nan)
    names = [field.name for field in fields(Annotated) if field.name != "pool"]
    return Annotated(pool=pool, **dict.fromkeys(names, nothing))


async def annotate(
    pools: Sequence[Pool],
    engine: Engine,
    judge: Engine | None = None,
    *,
    rivals: bool = True,
    progress: Progress = silent,
) -> list[Annotated]:
    """Returns the pools with their annotations; a pool with a passage that could not be judged is left out.

    `rivals`: eRAG and the answer's probability as well.
    """
    whole = [pool.context(range(len(pool.passages)), "all") for pool in pools]
    scored = await score_contexts(whole, engine, judge=judge, relevance="binary", progress=progress)
    by_hop = await _by_hop(pools, scored, engine, judge, progress)
    nothing = [np.full(len(pool.passages), np.nan) for pool in pools]
    erag = await _erag(whole, engine, progress) if rivals else nothing
    has_sequences = "sequence" in (await engine.info()).capabilities
    likely = await _p_answer(pools, engine, progress) if rivals and has_sequences else nothing
    found = []
    for pool, one, hops, worth, p_answer in zip(pools, scored, by_hop, erag, likely, strict=True):
        p_relevant, p_abstain, judged = (_all_of(one, name) for name in _NEEDED)
        if p_relevant is None or p_abstain is None or judged is None or hops is None:
            continue
        relevance = np.array(pool.relevance)
        found.append(Annotated(
            pool=pool, relevance=relevance, p_relevant=p_relevant, p_abstain=p_abstain,
            utility=np.asarray(utility(relevance, p_abstain)), judged=judged,
            by_hop=hops[0], judged_by_hop=hops[1],
            erag=worth, p_answer=p_answer,
        ))  # fmt: skip
    if pools and not found:
        failures = [failure.message for one in scored for failure in one.failures]
        raise EngineProtocolError(
            f"no question has all its passages judged: {failures[0] if failures else 'no reason was given'}"
        )
    return found


_NEEDED = ("p_relevant", "p_abstain", "utility")


def _all_of(scored: Scored, name: str) -> Floats | None:
    """Returns a score of every passage; None where one has none."""
    values = [value for value in scored.of_passages(name) if value is not None]
    return np.array(values) if len(values) == len(scored.context.passages) else None


async def _by_hop(
    pools: Sequence[Pool],
    scored: Sequence[Scored],
    engine: Engine,
    judge: Engine | None,
    progress: Progress,
) -> list[tuple[Floats, Floats] | None]:
    """Returns each passage's utility at its best over the hops that found it, with the world's relevance and the
    judge's. The only hop of a question is the question itself, so that no prompt is asked again.

    The only hop of a question is the question itself, so that nothing is asked again.
    """
    asked = [
        (at, hop, sorted(found), Context(
            id=f"{pool.id}/hop-{hop}", question_id=pool.id, question=pool.case.sub_questions[hop],
            passages=tuple(pool.passages[place] for place in sorted(found)),
        ))
        for at, pool in enumerate(pools)
        if pool.case.hops > 1
        for hop, found in enumerate(pool.found_by)
    ]  # fmt: skip
    contexts = [context for *_, context in asked]
    judged = await score_contexts(contexts, engine, judge=judge, relevance="binary", progress=progress)
    parts = [(at, hop, places, one) for (at, hop, places, _), one in zip(asked, judged, strict=True)]
    parts += [
        (at, 0, list(range(len(pools[at].passages))), one)
        for at, one in enumerate(scored)
        if pools[at].case.hops == 1
    ]
    best: list[tuple[Floats, Floats] | None] = [
        (np.full(len(pool.passages), -1.0), np.full(len(pool.passages), -1.0)) for pool in pools
    ]
    for at, hop, places, one in parts:
        held, p_abstain, said = best[at], _all_of(one, "p_abstain"), _all_of(one, "utility")
        if held is None or p_abstain is None or said is None:
            best[at] = None
            continue
        relevance = [float(place in pools[at].gold[hop]) for place in places]
        for values, new in zip(held, (np.asarray(utility(relevance, p_abstain)), said), strict=True):
            values[places] = np.maximum(values[places], new)
    return best


async def _erag(whole: Sequence[Context], engine: Engine, progress: Progress) -> list[Floats]:
    worth = await with_downstream_relevance(whole, engine, progress=progress)
    return [np.array(one.relevance, dtype=np.float64) for one in worth]


async def _p_answer(pools: Sequence[Pool], engine: Engine, progress: Progress) -> list[Floats]:
    prompts = load_prompts((await engine.info()).prompts)
    found: list[Floats] = []
    for done, pool in enumerate(pools):
        progress("asking for the right answer's probability", done, len(pools))
        asked = [abstention(prompts, pool.case.question, passage.text).prompt for passage in pool.passages]
        probs = await engine.label_probs(asked, [pool.case.answer], mode="sequence")
        found.append(np.asarray(probs.p[:, 0]))
    progress("asking for the right answer's probability", len(pools), len(pools))
    return found
