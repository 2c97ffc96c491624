"""Makes a run of an agent from a case: one step for each hop, with distractors beside the gold passages."""

from __future__ import annotations

import random
import time

from ragguard.errors import InvalidInput
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.world.cases import Case


def make_run(
    case: Case,
    *,
    seed: int = 0,
    junk: int = 2,
    useless_steps: int = 0,
    miss: tuple[int, ...] = (),
    mislead: tuple[int, ...] = (),
    parallel: bool = False,
    answer: str | None = None,
    references: bool = True,
) -> Run:
    """Makes a run over a case's sub-questions.

    Each step retrieves its gold passage and `junk` distractors (never contradicting ones). `miss` names
    hops (1-based) whose gold passage is left out, `mislead` hops where a contradicting passage stands
    in its place; `useless_steps` unrelated steps are mixed in; `parallel` puts all steps in one turn.
    Each step's metadata says `role`: `gold`, `missed`, `misled` or `useless`. `answer` defaults to the
    right one, to the false one where a hop is misled.
    """
    for name, hops in (("miss", miss), ("mislead", mislead)):
        if not set(hops) <= set(range(1, case.hops + 1)):
            raise InvalidInput(name, hops, f"hops of the case: 1 to {case.hops}")
    if junk < 0:
        raise InvalidInput("junk", junk, "0 or more")
    false = {passage.metadata["hop"]: passage for passage in reversed(case.of_kind("contradiction"))}
    if not set(mislead) <= set(false):
        raise InvalidInput(
            "mislead", mislead, "hops with a contradicting passage; this case was made without"
        )
    rng = random.Random(f"run {seed} {case.question}")
    truth = case.answer
    steps: list[RetrievalStep] = []
    for hop, query in enumerate(case.sub_questions, 1):
        near = [
            p
            for p in case.distractors
            if p.metadata.get("hop", hop) == hop and p.metadata["kind"] != "contradiction"
        ]
        passages = rng.sample(near, min(junk, len(near)))
        role = "gold"
        if hop in mislead:
            role = "misled"
            passages.append(false[hop])
            if hop == case.hops:
                truth = str(false[hop].metadata["object"])
        elif hop in miss:
            role = "missed"
        else:
            passages.append(case.gold[hop - 1])
        rng.shuffle(passages)
        steps.append(_step(query, passages, role))
    for _ in range(useless_steps):
        unrelated = case.of_kind("unrelated")
        passages = rng.sample(unrelated, min(max(1, junk), len(unrelated)))
        steps.insert(rng.randint(0, len(steps)), _step(case.question, passages, "useless"))
    now = time.time_ns()
    run = Run(
        question=case.question,
        references=list(case.references) if references else None,
        answer=truth if answer is None else answer,
        steps=steps,
        sub_questions=list(case.sub_questions),
        pool=case.pool(),
        started_ns=now,
        ended_ns=now + len(steps) * 10_000_000,
    )
    for index, step in enumerate(steps):
        step.run_id, step.index, step.turn = run.id, index, 0 if parallel else index
        step.started_ns = now + index * 10_000_000
        step.ended_ns = step.started_ns + 5_000_000
    return run


def _step(query: str, passages: list[Passage], role: str) -> RetrievalStep:
    return RetrievalStep(query=query, passages=passages, candidates=list(passages), metadata={"role": role})
