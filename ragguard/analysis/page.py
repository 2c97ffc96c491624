"""Writes the report as one self-contained HTML page: no network, no framework, no server.

Runs come out of a store or a folder of parts (`ScoredSource.overviews()`). They are written as
they come, in blocks that the page reads only when one of their runs is opened, so that ten thousand runs are
written in bounded memory and open at once. Texts that came from passages stand in JSON data and reach the page
as text nodes, never as markup; a content security policy allows the page's own script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ragguard._version import __version__
from ragguard.analysis.figures import Pictures
from ragguard.analysis.page_head import PageHead
from ragguard.analysis.wording import (
    Shortened,
    about_selections,
    diagnose_selection,
    remarks_on_coverage,
    remarks_on_fit,
    remarks_on_leads,
    remarks_on_worth,
    would_drop,
)
from ragguard.capture.model_calls import notice
from ragguard.errors import InvalidInput
from ragguard.facts.causes import cause_of
from ragguard.facts.documents import document_of
from ragguard.facts.run_view import HopView, RunView
from ragguard.facts.verdicts import BeliefGain
from ragguard.metrics.registry import METRICS, Metric, shown_rank
from ragguard.records import MODEL_CALLS, Decision, RetrievalStep, Score
from ragguard.runtime.faults import without_times
from ragguard.scorers.exam.record import remarks_on
from ragguard.storage.files.jsonl import writing
from ragguard.storage.sqlite.overview import SCALE, Overview

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
    with (
        writing(target),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder,
    ):
        draft = Path(folder, target.name)
        with draft.open("w", encoding="utf-8") as page:
            count = _write(runs, page, title, remarks, events)
        if not count:
            raise InvalidInput("runs", 0, "at least one run; score some first: `ragguard score RUNS.jsonl`")
        draft.replace(target)
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
    head_counts, pictures = PageHead(), Pictures()
    coming = iter(runs)
    while block := list(islice(coming, BLOCK)):
        number, texts = len(lines) // BLOCK, Texts()
        for run in block:
            line = summary(run)
            head_counts.add(len(lines), run.view)
            pictures.add(run.view, line["tokens"])
            lines.append(line)
        engines.update(engine for run in block for engine in run.engines)
        selections += [numbers for run in block for numbers in selection_numbers(run.view)]
        details = [detail(run, texts) for run in block]
        runs_and_texts = page_json({"runs": details, "texts": list(texts)})
        # The scores are JSON already.
        scores = ",".join(map(scores_json, block))
        write_data(page, f"block-{number}", f'{runs_and_texts[:-1]},"said":[{scores}]}}')
    captions = {
        name: {"title": metric.title, "about": metric.description, "range": _range(metric)}
        for name, metric in sorted(METRICS.items(), key=lambda item: shown_rank(item[0]))
    }
    write_data(page, "index", page_json({
        "runs": lines, "block": BLOCK, "scale": SCALE, "metrics": captions,
        "version": __version__, "events": events, "remarks": [*remarks(), *remarks_on(engines)],
        "head": head_counts.as_data(pictures.counts), "pictures": pictures.as_data(),
        "selections": about_selections(selections) if selections else "",
    }))  # fmt: skip
    page.write(foot.replace("{{script}}", script))
    return len(lines)


def _range(metric: Metric) -> str:
    """Returns the range of a metric in words, with the value at which it says that nothing happened."""
    low, high = (f"{end:.3g}".replace("-", "−") for end in metric.range)
    if not math.isfinite(metric.range[0]):
        return "any number; 0 = no effect"
    ends = f"{low} to {high}" if math.isfinite(metric.range[1]) else f"from {low}"
    nothing = {"udcg": 0.5, "udcg_context": 0.5}.get(metric.name, 0 if metric.range[0] < 0 else None)
    return ends if nothing is None else f"{ends}; {nothing:g} = no effect"


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


def summary(overview: Overview) -> Data:
    """Returns what the list of runs shows of a run and sorts, filters and searches by."""
    view, usage = overview.view, overview.usage
    run = view.run
    total, likelier = view.find("delta_seper_total"), view.find("delta_likelihood_total")
    return {
        **{name: getattr(run, name) for name in ("id", "question", "name", "status")},
        "state": view.state,
        "started": run.started_ns // 1_000_000,
        "answer": view.answer_verdict,
        "in_context": _value(view.find("answer_in_context")),
        "ungrounded": _value(view.find("ungrounded")),
        "hops": len(run.steps),
        "before": _value(view.find("seper_closed_book")),
        "gain": _value(total),
        "likelier": _value(likelier),
        "error": None if total is None else total.stderr,
        "tone": _tone(total),
        "source": next((one.reference_source for one in (total, likelier) if one is not None), ""),
        "dropped": sum(len(step.decision.dropped) for step in run.steps if step.decision),
        "misleading": _misleading(view),
        "worst": None if view.worst is None else round(view.worst, 4),
        "udcg": _value(view.find("udcg_context")),
        "coverage": _value(view.find("coverage_total")),
        "cause": cause_of(view),
        "failures": len(view.failures),
        "provisional": view.provisional,
        "session": str(run.metadata.get("session_id") or run.metadata.get("thread_id") or ""),
        "thumb": view.feedback("thumb"),
        "tokens": usage.prompt_tokens + usage.output_tokens,
    }


def _misleading(view: RunView) -> int:
    """Returns how many passages that were read mislead by their utility, or state the wrong answer of the run."""
    by_utility = {
        (hop.number, item.rank)
        for hop in view.hops
        for item in hop.passages
        if item.read and item.effect == "misleads"
    }
    return len(by_utility | view.explanation.blamed)


def _tone(gain: Score | None) -> str:
    return "" if gain is None else BeliefGain(gain.value, gain.stderr).tone


def _value(score: Score | None) -> float | None:
    return None if score is None else score.value


def detail(overview: Overview, texts: Texts) -> Data:
    """Returns what the page shows of an opened run, except its scores."""
    view, usage = overview.view, overview.usage
    run = view.run
    shortened: dict[int, list[Shortened]] = defaultdict(list)
    for place, *score in json.loads(overview.shortened):
        shortened[place].append(tuple(score))
    failures = [
        f"{one.scorer}: {one.error}. {one.message}{' It is tried again.' if one.will_retry else ''}"
        for one in view.failures
    ]
    return {
        "id": run.id,
        "references": run.references or [],
        "answer": run.answer,
        "explanation": view.explanation.text,
        "remarks": view.remarks,
        "took": max(0, run.ended_ns - run.started_ns) / 1e6 if run.ended_ns else None,
        "note": view.feedback("note"),
        "models": list(_model_calls(run.metadata.get(MODEL_CALLS))),
        "subs": overview.sub_questions,
        "steps": [
            _step(hop, run.steps, place, texts, run.started_ns, shortened=shortened[place])
            for hop, place in zip(view.hops, overview.places, strict=True)
        ],
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


def selection_numbers(view: RunView) -> list[tuple[float, float]]:
    """Returns PROC and %PROC of each step that has both."""
    return [numbers for hop in view.hops if (numbers := _selection(hop))]


def _selection(hop: HopView) -> tuple[float, float] | None:
    proc, chosen = hop.find("proc"), hop.find("pct_proc")
    return (proc.value, chosen.value) if proc and chosen else None


def scores_json(overview: Overview) -> str:
    """Returns the run's scores as JSON: those of passages, of steps and of the run. `Overview` has the columns."""
    return f"[{overview.of_passages},{overview.of_steps},{overview.of_run}]"


def _step(
    hop: HopView,
    steps: Sequence[RetrievalStep],
    place: int,
    texts: Texts,
    began_ns: int,
    *,
    shortened: Iterable[Shortened],
) -> Data:
    step, numbers = hop.step, _selection(hop)
    started, ended, decision, advice = step.started_ns, step.ended_ns, step.decision, step.advice
    said = notice(step.metadata, len(step.passages))
    return {
        "place": place,
        **{name: getattr(step, name) for name in ("id", "query", "tool", "status", "error")},
        "notice": "; ".join(filter(None, [said, *remarks_on_fit(shortened)])),
        "began": started,
        "at": max(0, started - began_ns) / 1e6 if began_ns and started else None,
        "took": max(0, ended - started) / 1e6 if ended else None,
        "guard": None if decision is None else {
            "status": decision.status, "reason": _why(decision), "ms": round(decision.elapsed_ms, 2),
        },
        "advice": None if advice is None else {
            name: getattr(advice, name) for name in ("action", "reasons", "calibrated", "elapsed_ms")
        },
        "k": hop.seen.places,
        "passages": [
            {
                "text": texts.setdefault(one.passage.text, len(texts)), "kept": one.read,
                "document": document_of(one.passage),
                "utility": one.utility, "verdict": one.verdict.words, "tone": one.verdict.tone, "bar": one.tone,
            }
            for one in hop.passages
        ],
        "tones": {name: _tone(hop.find(name)) for name in ("credit", "delta_seper", "delta_likelihood")},
        "remarks": [
            *remarks_on_leads(step, steps), *remarks_on_worth(hop, steps), *remarks_on_coverage(hop),
            *([diagnose_selection(*numbers)] if numbers else []),
        ],
    }  # fmt: skip


def _why(decision: Decision) -> str:
    """Returns the reason of a guard's decision, with what it would have dropped where it was in shadow."""
    shadow = would_drop([drop.position for drop in decision.would_drop])
    return "; ".join(filter(None, [decision.reason, shadow]))
