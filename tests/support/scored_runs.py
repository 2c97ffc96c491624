"""A scored run of two hops, the second one guarded: what the sinks' tests send."""

from ragguard.records import Decision, Dropped, Failure, Passage, RetrievalStep, Run, Score, ScoredRun, Usage

START = 1_700_000_000_000_000_000
MS = 1_000_000


def two_hops(passages=3, **fields):
    """A run of two steps, the second one guarded, with scores and a failure."""
    steps = [
        RetrievalStep(
            run_id="r", id=f"s{i}", index=i, turn=i, query=f"secret query {i}", tool="search",
            passages=[Passage(f"secret text {i}.{p}", f"doc-{p}", 0.5 - p / 100) for p in range(passages)],
            started_ns=START + i * 10 * MS, ended_ns=START + (i * 10 + 5) * MS,
        )
        for i in range(2)
    ]  # fmt: skip
    dropped = Dropped(Passage("secret junk", "doc-9"), 2, "utility -0.80 < -0.20", -0.8, 0.1, 0.05)
    steps[1].decision = Decision(steps[1].passages, [dropped], "pruned", 2.0, "UtilityThreshold")
    run = Run(
        "r", "secret question", ["x"], "secret answer", steps, started_ns=START, ended_ns=START + 30 * MS
    )
    for name, value in fields.items():
        setattr(run, name, value)
    made = {"engine": "model/first_token", "prompts": "default/1", "scorer": "utility", "version": "1.ab"}
    cost = Usage(1, 3, 300, 3)
    scores = [
        Score("udcg", 0.61, "step", "r", "s0", stderr=0.02, explanation="secret reason", usage=cost, **made),
        Score("delta_seper", 0.4, "step", "r", "s0", reference_source="gold", **made),
        Score("delta_seper", 0.1, "step", "r", "s1", reference_source="answer", **made),
        *(
            Score("p_relevant", 0.9 - p / 10, "passage", "r", "s0", f"doc-{p}", p + 1, **made)
            for p in range(min(passages, 9))
        ),
        *(
            Score("utility", 0.9 - p, "passage", "r", "s0", f"doc-{p}", p + 1, **made)
            for p in range(passages)
        ),
        Score("coverage_total", 1.0, "run", "r"),
    ]
    failure = Failure("coverage", "EngineTimeout", "secret message", True, "r", "s1")
    return ScoredRun(run, scores, [failure], START + 40 * MS, START + 60 * MS)
