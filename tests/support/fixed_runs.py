"""Runs with scores and failures that use every field of the records, the same in every version of this project.

Golden files and files of past versions are compared with them: add runs, and leave those that are here.
"""

from __future__ import annotations

from ragguard.records import (
    Decision,
    Dropped,
    Failure,
    Passage,
    RetrievalStep,
    Run,
    Score,
    SubStep,
    TraceContext,
    Usage,
)
from ragguard.telemetry.sink import ScoredRun

START = 1_700_000_000_000_000_000
MS = 1_000_000
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def fixed_runs() -> list[ScoredRun]:
    """A guarded run of two hops, one that failed, one without steps, and one of parallel steps without references."""
    return [_guarded(), _failed(), _empty(), _parallel()]


def _guarded() -> ScoredRun:
    firm = Passage(
        text="Norvik Mills is based in Oslo.", id="p1", score=0.91, metadata={"page": 3, "gold": True}
    )
    near = Passage(text="Velara Works is based in Bergen.", id="p2", score=0.72)
    junk = Passage(text="Buy <b>now</b> – “today” only, Zoë!", id="p3", score=-1.5, grade=1)
    founder = Passage(
        text="Ada Berg founded Norvik Mills.", id="p4", metadata={"tags": ["a", None], "at": {"x": 1.5}}
    )
    first = RetrievalStep(
        id="guarded-s0", run_id="guarded", index=0, turn=0, query="firm based in Oslo",
        passages=[firm, near], candidates=[firm, near, junk], started_ns=START + MS, ended_ns=START + 5 * MS,
        tool="search", metadata={"k": 3, "retriever": "VectorStoreRetriever"},
        trace=TraceContext(trace_id=TRACE_ID, span_id="b7ad6b7169203331", sampled=True, foreign=False),
        sub_steps=[
            SubStep(query="firm Oslo", passages=[firm, junk], name="dense", started_ns=START + MS,
                    ended_ns=START + 2 * MS),
            SubStep(query="Oslo company", passages=[near], name="sparse", started_ns=START + 2 * MS,
                    ended_ns=START + 4 * MS, status="error"),
        ],
        decision=Decision(
            kept=[firm, near], dropped=[Dropped(passage=junk, position=3, reason="utility -0.80 < -0.20",
                                                utility=-0.8, p_abstain=0.1, p_relevant=0.05)],
            status="pruned", elapsed_ms=2.5, reason="UtilityThreshold", engine="reader/first_token",
            started_ns=START + 4 * MS,
        ),
    )  # fmt: skip
    second = RetrievalStep(
        id="guarded-s1", run_id="guarded", index=1, turn=1, query="founder of Norvik Mills",
        passages=[founder, firm], candidates=[founder, firm], started_ns=START + 10 * MS, ended_ns=START + 12 * MS,
    )  # fmt: skip
    run = Run(
        id="guarded", question="Who founded the firm based in Oslo?", references=["Ada Berg", "A. Berg"],
        answer="Ada Berg", steps=[first, second], status="ok", metadata={"user": 7, "session": "s-1"},
        sub_questions=["Which firm is based in Oslo?", "Who founded it?"],
        pool=[Passage(text=firm.text, id="p1", grade=5), Passage(text=junk.text, id="p3", grade=1)],
        name="agent", started_ns=START, ended_ns=START + 30 * MS,
        trace=TraceContext(trace_id=TRACE_ID, span_id="00f067aa0ba902b7"),
    )  # fmt: skip
    made = {
        "engine": "reader/first_token",
        "prompts": "default/1",
        "scorer": "utility",
        "version": "1-0123abcd",
    }
    belief = {**made, "scorer": "belief", "version": "1-89abcdef", "references_hash": "5f0c7ab8"}
    cost = Usage(requests=1, prompts=3, prompt_tokens=300, output_tokens=3, seconds=0.25, cached=1)
    scores = [
        Score(name="p_relevant", value=0.875, level="passage", run_id="guarded", step_id="guarded-s0",
              passage_id="p1", position=1, **made),
        Score(name="p_relevant", value=0.25, level="passage", run_id="guarded", step_id="guarded-s0",
              passage_id="p2", position=2, **made),
        Score(name="utility", value=-0.8, level="passage", run_id="guarded", step_id="guarded-s0",
              passage_id="p3", position=3, stage="candidates", **made),
        Score(name="udcg", value=0.61, level="step", run_id="guarded", step_id="guarded-s0", stderr=0.02,
              explanation="two of three", usage=cost, **made),
        Score(name="delta_seper", value=0.4, level="step", run_id="guarded", step_id="guarded-s0",
              reference_source="gold", metadata={"context_tokens": 40}, **belief),
        Score(name="delta_seper", value=0.1, level="step", run_id="guarded", step_id="guarded-s1",
              reference_source="answer", **belief),
        Score(name="answerability", value=5.0, level="passage", run_id="guarded", step_id="guarded-s1",
              passage_id="p4", position=1, sub_question=1, expectation=4.75, scorer="coverage", version="1-7654dcba",
              engine="judge/sequence", prompts="default/1"),
        Score(name="answer_correct", value=1.0, level="run", run_id="guarded", label="correct",
              reference_source="gold", **belief),
    ]  # fmt: skip
    failures = [
        Failure(scorer="coverage", error="EngineTimeout", message="no answer within 30 s", will_retry=True,
                run_id="guarded", step_id="guarded-s1", attempts=2, occurred_ns=START + 50 * MS),
    ]  # fmt: skip
    return ScoredRun(run, scores, failures, START + 40 * MS, START + 60 * MS)


def _failed() -> ScoredRun:
    step = RetrievalStep(
        id="failed-s0", run_id="failed", index=0, turn=0, query="the weather", started_ns=START,
        ended_ns=START + MS, status="error", tool="weather", error="ConnectionError: refused",
    )  # fmt: skip
    run = Run(
        id="failed", question="Is it raining?", steps=[step], status="error", started_ns=START,
        ended_ns=START + 2 * MS,
    )  # fmt: skip
    failure = Failure(scorer="belief", error="NothingRetrieved", message="no passages", run_id="failed",
                      step_id="failed-s0", occurred_ns=START + 3 * MS)  # fmt: skip
    return ScoredRun(run, [], [failure], START + 3 * MS, START + 4 * MS)


def _empty() -> ScoredRun:
    run = Run(id="empty", question="hello?", references=[], answer="", started_ns=START, ended_ns=START + MS)
    return ScoredRun(run)


def _parallel() -> ScoredRun:
    steps = [
        RetrievalStep(
            id=f"parallel-s{index}", run_id="parallel", index=index, turn=0, query=query,
            passages=[Passage(text=text, id=str(index))], candidates=[Passage(text=text, id=str(index))],
            started_ns=START + index * MS, ended_ns=START + 9 * MS, tool="wiki",
        )
        for index, (query, text) in enumerate([("Oslo", "Oslo is a city."), ("Bergen", "Oslo is a city.")])
    ]  # fmt: skip
    run = Run(
        id="parallel", question="Which is a city?", answer="Oslo", steps=steps, status="interrupted",
        started_ns=START, ended_ns=START + 10 * MS,
    )  # fmt: skip
    made = {
        "scorer": "utility",
        "version": "1-0123abcd",
        "engine": "reader/first_token",
        "prompts": "default/1",
    }
    scores = [
        Score(name="harm", value=0.0, level="step", run_id="parallel", step_id=step.id, **made)
        for step in steps
    ]
    return ScoredRun(run, scores, [], START + 20 * MS, START + 25 * MS)
