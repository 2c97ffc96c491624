"""Writes the report as one self-contained HTML page: no network, no framework, no server.

Runs come out of a store or a folder of parts (`ScoredSource.overviews(MISLEADS)`). They are written as
they come, in blocks that the page reads only when one of their runs is opened, so that ten thousand runs are
written in bounded memory and open at once. Texts that came from passages stand in JSON data and reach the page
as text nodes, never as markup; a content security policy allows the page's own script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ragguard._version import __version__
from ragguard.analysis.wording import (
    MISLEADS,
    Shortened,
    about_selections,
    best,
    diagnose_selection,
    remarks_on_fit,
    would_drop,
)
from ragguard.errors import InvalidInput, StoreError
from ragguard.facts.explanation import Explanation, explain_facts
from ragguard.facts.run_facts import READ, HopFacts, RunFacts, with_scores
from ragguard.metrics.registry import METRICS
from ragguard.records import MODEL_CALLS, Decision, Score
from ragguard.runtime.faults import without_times
from ragguard.scorers.exam.record import remarks_on
from ragguard.storage.sqlite.overview import SCALE, Overview, StepLine

BLOCK = 50
"""The number of runs in one block of data."""
_PAGE_FILES = files("ragguard.analysis") / "page_files"
Data = dict[str, Any]
Texts = dict[str, int]
"""Texts in the order of their numbers, so that a passage retrieved often is written once."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_html(
    runs: Iterable[Overview],
    path: str | Path,
    title: str = "ragguard",
    remarks: Callable[[], Sequence[str]] = list,
    events: str = "",
) -> int:
    """Writes the page and returns how many runs it holds; the file appears only when it is complete.

    `remarks` is called after the last run and returns the facts that a reader of the numbers has to know. With
    `events`, the address of server-sent events, the page is loaded anew at each of these.
    """
    target = Path(path)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
            draft = Path(folder, target.name)
            with draft.open("w", encoding="utf-8") as page:
                count = _write(runs, page, title, remarks, events)
            if not count:
                raise InvalidInput(
                    "runs", 0, "at least one run; score some first: `ragguard score RUNS.jsonl`"
                )
            draft.replace(target)
    except OSError as error:
        raise StoreError(f"{target} could not be written ({error.strerror}); name another file") from error
    return count


def _write(
    runs: Iterable[Overview], page: IO[str], title: str, remarks: Callable[[], Sequence[str]], events: str
) -> int:
    style, script = ((_PAGE_FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = content_policy(style, script) + ("; connect-src 'self'" if events else "")
    head, _, foot = (_PAGE_FILES / "page.html").read_text(encoding="utf-8").partition("<!-- data -->")
    page.write(
        head.replace("{{policy}}", policy).replace("{{title}}", escape(title)).replace("{{style}}", style)
    )
    lines: list[Data] = []
    engines: set[str] = set()
    selections: list[tuple[float, float]] = []
    coming = iter(runs)
    while block := list(islice(coming, BLOCK)):
        number, texts = len(lines) // BLOCK, Texts()
        lines += map(summary, block)
        engines.update(engine for run in block for engine in run.engines)
        selections += [numbers for run in block for numbers in selection_numbers(run).values()]
        details = [detail(run, texts) for run in block]
        written = page_json({"runs": details, "texts": list(texts)})
        # The scores are JSON already.
        said = ",".join(map(scores_json, block))
        write_data(page, f"block-{number}", f'{written[:-1]},"said":[{said}]}}')
    captions = {name: {"title": one.title, "about": one.description} for name, one in METRICS.items()}
    write_data(page, "index", page_json({
        "runs": lines, "block": BLOCK, "misleads": MISLEADS, "scale": SCALE, "metrics": captions,
        "version": __version__, "events": events, "remarks": [*remarks(), *remarks_on(engines)],
        "selections": about_selections(selections) if selections else "",
    }))  # fmt: skip
    page.write(foot.replace("{{script}}", script))
    return len(lines)


def page_json(data: dict[str, Any]) -> str:
    """Returns plain data as JSON that is valid UTF-8."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def write_data(page: IO[str], name: str, text: str) -> None:
    """Writes JSON into a page so that nothing in it ends the element."""
    for unsafe, written in _UNSAFE.items():
        text = text.replace(unsafe, written)
    page.write(f'<script type="application/json" id="{name}">{text}</script>\n')


def content_policy(style: str, script: str) -> str:
    """Returns the content security policy that lets in these two by their hashes, and nothing else."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    allowed = "style-src 'sha256-{}'; script-src 'sha256-{}'".format(*hashes)
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


STATES = {"open": "running", "ok": "", "interrupted": "waits to go on"}
"""The words that are shown for the status of a run; other statuses are shown as they are."""


def summary(overview: Overview) -> Data:
    """Returns what the list of runs shows of a run and sorts, filters and searches by."""
    row, metadata = overview.row, overview.metadata
    scores = overview.run_scores()
    total, likelier = best(scores, "delta_seper_total"), best(scores, "delta_likelihood_total")
    correct = best(scores, "answer_correct")
    return {
        **{name: row[name] for name in ("id", "question", "name", "status")},
        "state": STATES.get(row["status"], row["status"]),
        "started": row["started_ns"] // 1_000_000,
        "hops": len(overview.steps),
        "before": _value(best(scores, "seper_closed_book")),
        "gain": _value(total),
        "likelier": _value(likelier),
        "error": None if total is None else total.stderr,
        "source": next((one.reference_source for one in (total, likelier) if one is not None), ""),
        "dropped": sum(len(step.reasons) for step in overview.steps),
        "misleading": overview.misleading,
        "worst": None if overview.worst is None else round(overview.worst, 4),
        "udcg": _value(best(scores, "udcg_context")),
        "coverage": _value(best(scores, "coverage_total")),
        "answer": "" if correct is None else correct.label,
        "failures": len(overview.failures),
        "provisional": overview.provisional > 0,
        "session": str(metadata.get("session_id") or metadata.get("thread_id") or ""),
        "thumb": str(overview.feedback.get("thumb", "")),
        "tokens": overview.usage.prompt_tokens + overview.usage.output_tokens,
    }


def _value(score: Score | None) -> float | None:
    return None if score is None else score.value


def detail(overview: Overview, texts: Texts) -> Data:
    """Returns what the page shows of an opened run, except its scores."""
    run, usage = overview.row, overview.usage
    explanation, selections = explanation_of(overview), selection_numbers(overview)
    shortened: dict[int, list[Shortened]] = defaultdict(list)
    for seq, *score in json.loads(overview.shortened):
        shortened[seq].append(tuple(score))
    steps = []
    for number, step in enumerate(overview.steps, 1):
        bridge = explanation.bridges.get(number)
        remarks = [bridge.remark] if bridge else []
        if step.seq in selections:
            remarks.append(diagnose_selection(*selections[step.seq]))
        steps.append({
            **_step(step, texts, run["started_ns"], shortened[step.seq]),
            "wrong": sorted(rank for hop, rank in explanation.sources if hop == number),
            "stating": sorted(rank for hop, rank in explanation.stating if hop == number),
            "bridge": bridge.later.number if bridge else None,
            "remarks": remarks,
        })  # fmt: skip
    failures = [
        f"{one.scorer}: {one.error}. {one.message}{' It is tried again.' if one.will_retry else ''}"
        for one in overview.failures
    ]
    return {
        "id": run["id"],
        "references": overview.references,
        "answer": run["answer"],
        "explanation": explanation.text,
        "took": max(0, run["ended_ns"] - run["started_ns"]) / 1e6 if run["ended_ns"] else None,
        "note": str(overview.feedback.get("note", "")),
        "models": list(_model_calls(overview.metadata.get(MODEL_CALLS))),
        "subs": overview.sub_questions,
        "steps": steps,
        "failures": list({without_times(said): said for said in failures}.values()),
        "cost": {
            "requests": usage.requests, "prompt": usage.prompt_tokens, "output": usage.output_tokens,
            "seconds": round(usage.seconds, 3), "engines": overview.engines,
        },
    }  # fmt: skip


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
    row = overview.row
    hops = {}
    for number, step in enumerate(overview.steps, 1):
        turn, query = step.row["turn"], step.row["query"] or row["question"]
        read = frozenset(rank for rank, kept in enumerate(step.kept, 1) if kept)
        dropped = frozenset(step.reasons)
        hops[str(step.seq)] = HopFacts(number, turn, query, step.texts, read=read, dropped=dropped)
    facts = RunFacts(
        question=row["question"], answer=row["answer"] or "", references=overview.references,
        hops=list(hops.values()),
    )  # fmt: skip

    def score(seq: int | None, name: str, value: float, error: float | None, **more: Any) -> Score:
        stderr = None if error is None else error / SCALE
        return Score(name, value / SCALE, "step", "", step_id=str(seq or ""), stderr=stderr, **more)

    scores = [
        score(seq, name, value, error, position=rank)
        for seq, rank, name, value, _, error in json.loads(overview.of_passages)
        if name == "utility"
    ]
    scores += [
        score(seq, name, value, error, label=label, reference_source=source)
        for rows in (overview.of_steps, overview.of_run)
        for seq, name, value, error, label, source, stage in json.loads(rows)
        if name in READ and stage == "passages"
    ]
    return explain_facts(with_scores(facts, hops, scores))


def selection_numbers(overview: Overview) -> dict[int, tuple[float, float]]:
    """Returns PROC and %PROC of each step that has both, by its `seq`."""
    found: dict[int, dict[str, float]] = {}
    if '"pct_proc"' in overview.of_steps:
        for seq, name, value, *_ in json.loads(overview.of_steps):
            found.setdefault(seq, {})[name] = value / SCALE
    return {
        seq: (values["proc"], values["pct_proc"])
        for seq, values in found.items()
        if {"proc", "pct_proc"} <= values.keys()
    }


def scores_json(overview: Overview) -> str:
    """Returns the run's scores as JSON: those of passages, of steps and of the run. `Overview` has the columns."""
    return f"[{overview.of_passages},{overview.of_steps},{overview.of_run}]"


def _step(step: StepLine, texts: Texts, began_ns: int, shortened: Iterable[Shortened]) -> Data:
    row, decision = step.row, step.decision
    started, ended = row["started_ns"], row["ended_ns"]
    return {
        "place": step.seq,
        **{name: row[name] for name in ("id", "query", "tool", "status")},
        "error": step.error,
        "notice": "; ".join(filter(None, [step.notice, *remarks_on_fit(shortened)])),
        "began": started,
        "at": max(0, started - began_ns) / 1e6 if began_ns and started else None,
        "took": max(0, ended - started) / 1e6 if ended else None,
        "guard": None if decision is None else {
            "status": decision.status, "reason": _why(decision), "ms": round(decision.elapsed_ms or 0, 2),
        },
        "advice": step.advice and {
            name: getattr(step.advice, name) for name in ("action", "reasons", "calibrated", "elapsed_ms")
        },
        "texts": [texts.setdefault(text, len(texts)) for text in step.texts],
        "k": step.places,
        "kept": step.kept,
        "reasons": step.reasons,
    }  # fmt: skip


def _why(decision: Decision) -> str:
    """Returns the reason of a guard's decision, with what it would have dropped where it was in shadow."""
    shadow = would_drop([drop.position for drop in decision.would_drop])
    return "; ".join(filter(None, [decision.reason, shadow]))
