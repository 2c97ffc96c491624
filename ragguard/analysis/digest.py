"""Makes plain data of a run for the report's page: each text once, passages in columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar

from ragguard.analysis.selection import diagnose_selection
from ragguard.analysis.shadow import would_drop
from ragguard.records import MODEL_CALLS, Score
from ragguard.runtime.faults import without_times
from ragguard.scorers.explanation import Explanation, explain_facts
from ragguard.scorers.run_facts import CLEAR, READ, HopFacts, Number, RunFacts, with_numbers
from ragguard.storage.sqlite.overview import SCALE, Overview, RunLine, StepLine
from ragguard.text.secret_filter import strip_control_characters

Data = dict[str, Any]
Texts = dict[str, int]
"""Texts in the order of their numbers, so that a passage retrieved often is written once."""
MISLEADS = -CLEAR
"""A passage that the model got, with a utility lower than this, is said to mislead. The guard's default threshold is
the same."""
IN_COLUMNS = ("delta_seper", "udcg", "coverage", "delta_seper_selection", "delta_udcg_selection", "contested")
"""The scores of a step that have a place of their own in the terminal, or go with one that has."""
STATES = {"open": "running", "ok": "", "interrupted": "waits to go on"}
"""The words that are shown for the status of a run; other statuses are shown as they are."""
Shortened: TypeAlias = tuple[int | None, str, object, object]
"""A note that a model read less than all passages: the rank of the passage, the score's name, passages left out, tokens
cut."""

_OF_ALL_READ = ("delta_seper", "semantic_entropy")
"""The step scores that are about everything read up to that step."""


def summary(run: RunLine) -> Data:
    """Returns what the list of runs shows of a run and sorts, filters and searches by."""
    total, correct = best(run.scores, "delta_seper_total"), best(run.scores, "answer_correct")
    context, covered = best(run.scores, "udcg_context"), best(run.scores, "coverage_total")
    before, likelier = best(run.scores, "seper_closed_book"), best(run.scores, "delta_likelihood_total")
    return {
        "id": run.id,
        "question": run.question,
        "name": run.name,
        "status": run.status,
        "state": STATES.get(run.status, run.status),
        "started": run.started_ns // 1_000_000,
        "hops": run.hops,
        "before": None if before is None else before.value,
        "gain": None if total is None else total.value,
        "likelier": None if likelier is None else likelier.value,
        "error": None if total is None else total.stderr,
        "source": next((one.reference_source for one in (total, likelier) if one is not None), ""),
        "dropped": run.dropped,
        "misleading": run.misleading,
        "worst": None if run.worst is None else round(run.worst, 4),
        "udcg": None if context is None else context.value,
        "coverage": None if covered is None else covered.value,
        "answer": "" if correct is None else correct.label,
        "failures": run.failures,
        "provisional": run.provisional > 0,
        "session": run.session,
        "thumb": run.thumb,
        "tokens": run.usage.prompt_tokens + run.usage.output_tokens,
    }


def detail(overview: Overview, texts: Texts) -> Data:
    """Returns what the page shows of an opened run, except its scores."""
    run, usage = overview.row, overview.summary.usage
    explanation, selections = explanation_of(overview), selection_numbers(overview)
    shortened: dict[int, list[Shortened]] = {}
    for seq, *score in json.loads(overview.summary.shortened):
        shortened.setdefault(seq, []).append(tuple(score))
    return {
        "id": run["id"],
        "references": overview.references,
        "answer": run["answer"],
        "explanation": explanation.text,
        "took": max(0, run["ended_ns"] - run["started_ns"]) / 1e6 if run["ended_ns"] else None,
        "note": str(overview.feedback.get("note", "")),
        "models": list(_model_calls(overview.metadata.get(MODEL_CALLS))),
        "subs": overview.sub_questions or overview.summary.sub_questions,
        "steps": [
            {
                **_step(step, texts, run["started_ns"], shortened.get(step.seq, ())),
                "wrong": sorted(rank for hop, rank in explanation.sources if hop == number),
                "stating": sorted(rank for hop, rank in explanation.stating if hop == number),
                "bridge": bridge.later.number if (bridge := explanation.bridges.get(number)) else None,
                "remarks": [
                    *([bridge.remark] if bridge else []),
                    *([diagnose_selection(*selections[step.seq])] if step.seq in selections else []),
                ],
            }
            for number, step in enumerate(overview.steps, 1)
        ],
        "failures": list(
            {
                (failure.scorer, failure.error, failure.step_id, without_times(failure.message)): {
                    "scorer": failure.scorer,
                    "error": failure.error,
                    "message": failure.message,
                    "step": failure.step_id,
                    "retry": failure.will_retry,
                }
                for failure in overview.failures
            }.values()
        ),
        "cost": {
            "requests": usage.requests,
            "prompt": usage.prompt_tokens,
            "output": usage.output_tokens,
            "seconds": round(usage.seconds, 3),
            "engines": overview.summary.engines,
        },
    }


def _model_calls(calls: object) -> Iterator[Data]:
    """Yields the calls of models that a run's metadata hold, without anything that is not as the trace's reader writes
    it."""
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            numbers = ("started_ns", "seconds", "tokens_read", "tokens_written", "cost")
            known = {name: call[name] for name in numbers if isinstance(call.get(name), int | float)}
            yield {"model": str(call.get("model", "")), "started_ns": 0, "seconds": 0, **known}


def explanation_of(overview: Overview) -> Explanation:
    """Returns the explanation of a run; the same as of the run and its scores themselves."""
    row, summary = overview.row, overview.summary
    hops = {
        step.seq: HopFacts(
            number,
            step.row["turn"],
            step.row["query"] or row["question"],
            step.texts,
            read=frozenset(rank for rank, kept in enumerate(step.kept, 1) if kept),
            dropped=frozenset(step.reasons),
            texts_known=step.texts_known,
        )
        for number, step in enumerate(overview.steps, 1)
    }
    facts = RunFacts(
        question=row["question"], answer=row["answer"] or "", references=overview.references,
        hops=list(hops.values()), sub_questions=overview.sub_questions,
    )  # fmt: skip
    of_passages = (
        Number(
            step=seq,
            rank=rank,
            name=name,
            value=value / SCALE,
            stderr=None if error is None else error / SCALE,
            sub_question=sub,
        )
        for seq, rank, name, value, sub, error in json.loads(summary.of_passages)
        if name == "utility" or (name == "answerability" and overview.sub_questions)
    )
    others = (
        Number(
            step=seq, rank=None, name=name, value=value / SCALE,
            stderr=None if error is None else error / SCALE, label=label, source=source,
        )
        for rows in (summary.of_steps, summary.of_run)
        for seq, name, value, error, label, source, stage in json.loads(rows)
        if name in READ and stage == "passages"
    )  # fmt: skip
    return explain_facts(with_numbers(facts, hops, (*of_passages, *others)))


def selection_numbers(overview: Overview) -> dict[int, tuple[float, float]]:
    """Returns PROC and %PROC of each step that has both, by its `seq`."""
    found: dict[int, dict[str, float]] = {}
    if '"pct_proc"' in overview.summary.of_steps:
        for seq, name, value, *_ in json.loads(overview.summary.of_steps):
            found.setdefault(seq, {})[name] = value / SCALE
    return {
        seq: (values["proc"], values["pct_proc"])
        for seq, values in found.items()
        if {"proc", "pct_proc"} <= values.keys()
    }


def scores_json(overview: Overview) -> str:
    """Returns the run's scores as JSON: those of passages, of steps and of the run. `ScoreSummary` has the columns."""
    summary = overview.summary
    return f"[{summary.of_passages},{summary.of_steps},{summary.of_run}]"


def _step(
    step: StepLine,
    texts: Texts,
    began_ns: int,
    shortened: Iterable[Shortened],
) -> Data:
    row, decision = step.row, step.decision
    started, ended = row["started_ns"], row["ended_ns"]
    return {
        "place": step.seq,
        "id": row["id"],
        "query": row["query"],
        "tool": row["tool"],
        "turn": row["turn"],
        "status": row["status"],
        "error": step.error,
        "notice": "; ".join(filter(None, [step.notice, *remarks_on_fit(shortened)])),
        "began": started,
        "at": max(0, started - began_ns) / 1e6 if began_ns and started else None,
        "took": max(0, ended - started) / 1e6 if ended else None,
        "guard": None if decision is None else {
            "status": decision["status"], "reason": _why(decision), "ms": round(decision["elapsed_ms"] or 0, 2),
        },
        "advice": None if step.advice is None else {
            "action": str(step.advice.get("action", "")),
            "reasons": [str(why) for why in step.advice.get("reasons", ())],
            "calibrated": bool(step.advice.get("calibrated")),
            "ms": round(float(step.advice.get("elapsed_ms") or 0), 2),
        },
        "texts": [texts.setdefault(text, len(texts)) for text in step.texts],
        "k": step.places,
        "kept": step.kept,
        "reasons": step.reasons,
    }  # fmt: skip


def _why(decision: Data) -> str:
    """Returns the reason of a guard's decision, with what it would have dropped where it was in shadow."""
    shadow = would_drop([rank for _, rank, *_ in decision.get("would_drop", ())])
    return "; ".join(filter(None, [decision["reason"], shadow]))


def named(scores: Iterable[Score]) -> list[str]:
    """Returns each number about a step as a whole that has no column of its own, with its name, and whether they are
    support of the run's own answer."""
    latest = {
        score.name: score
        for score in scores
        if score.level == "step" and score.stage == "passages" and score.name not in IN_COLUMNS
    }
    support = any(score.reference_source == "answer" for score in latest.values())
    numbers = [f"{strip_control_characters(name)} {score.value:z.2f}" for name, score in latest.items()]
    return [*numbers, *(["(support)"] if support else [])]


class ShownScore(Protocol):
    """A score, or what an overview keeps of one, as `best` reads it."""

    @property
    def name(self) -> str: ...
    @property
    def reference_source(self) -> str: ...
    @property
    def stage(self) -> str: ...


S = TypeVar("S", bound=ShownScore)


def best(scores: Iterable[S], name: str, stage: str = "passages") -> S | None:
    """Returns the latest score of a name; a score against gold is preferred to one against the answer."""
    found = [score for score in scores if score.name == name and score.stage == stage][::-1]
    return min(found, key=lambda score: score.reference_source != "gold", default=None)


def remarks_on_fit(scores: Iterable[Shortened]) -> list[str]:
    """Returns what did not fit for the beliefs of a hop, and which passages did not fit alone; empty where all did."""
    left_out = cut = 0
    alone: set[int] = set()
    for rank, name, *counts in scores:
        dropped, tokens = (count if isinstance(count, int) else 0 for count in counts)
        if rank is None and name in _OF_ALL_READ:
            left_out, cut = max(left_out, dropped), max(cut, tokens)
        elif rank is not None and tokens:
            alone.add(rank)
    tokens_cut = f"{cut:,} token{' was' if cut == 1 else 's were'} cut"
    found: list[str] = []
    if left_out:
        rest = f", and from the rest {tokens_cut}" if cut else ""
        found.append(
            f"{left_out:,} of the passages read so far did not fit the model's context and "
            f"{'was' if left_out == 1 else 'were'} left out of ΔSePer{rest}"
        )
    elif cut:
        found.append(
            f"the passages read so far did not fit the model's context: for ΔSePer, {tokens_cut} from them"
        )
    if alone:
        ranks = ", ".join(map(str, sorted(alone)))
        found.append(
            f"passage{'' if len(alone) == 1 else 's'} {ranks} did not fit the model's context alone: "
            f"{'its' if len(alone) == 1 else 'their'} own scores are about a part"
        )
    return found
