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
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from ragguard._version import __version__
from ragguard.analysis.digest import MISLEADS, Texts, detail, scores_json, selection_numbers, summary
from ragguard.analysis.selection import about_selections
from ragguard.errors import InvalidInput, StoreError
from ragguard.metrics.registry import METRICS
from ragguard.scorers.exam.record import remarks_on
from ragguard.storage.sqlite.overview import SCALE, Overview

BLOCK = 50
"""The number of runs in one block of data."""
PAGE_FILES = files("ragguard.analysis") / "page_files"
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
    if not isinstance(path, str | Path):
        raise InvalidInput("path", path, "the path of a file to write")
    if not isinstance(runs, Iterable):
        raise InvalidInput("runs", runs, "what `Store.overviews(MISLEADS)` yields")
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
        reason = error.strerror or error
        raise StoreError(
            f"the report could not be written to {target} ({reason}); name another file"
        ) from error
    return count


def _write(
    runs: Iterable[Overview], page: IO[str], title: str, remarks: Callable[[], Sequence[str]], events: str
) -> int:
    style, script = ((PAGE_FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = content_policy(style, script) + ("; connect-src 'self'" if events else "")
    head, _, foot = (PAGE_FILES / "page.html").read_text(encoding="utf-8").partition("<!-- data -->")
    page.write(
        head.replace("{{policy}}", policy).replace("{{title}}", escape(title)).replace("{{style}}", style)
    )
    lines: list[dict[str, Any]] = []
    engines: set[str] = set()
    block: list[dict[str, Any]] = []
    score_rows: list[str] = []
    selections: list[tuple[float, float]] = []
    texts: Texts = {}
    for run in runs:
        if not isinstance(run, Overview):
            raise InvalidInput("runs", run, "what `Store.overviews(MISLEADS)` yields")
        lines.append(summary(run.line))
        engines.update(run.summary.engines)
        selections += selection_numbers(run).values()
        block.append(detail(run, texts))
        score_rows.append(scores_json(run))
        if len(block) == BLOCK:
            _block(page, len(lines) // BLOCK - 1, block, score_rows, texts)
            block, score_rows, texts = [], [], {}
    if block:
        _block(page, len(lines) // BLOCK, block, score_rows, texts)
    captions = {
        name: {"title": m.title, "about": m.description, "range": _ends(m.range), "better": m.direction}
        for name, m in METRICS.items()
    }
    write_data(page, "index", page_json({
        "runs": lines, "block": BLOCK, "misleads": MISLEADS, "scale": SCALE, "metrics": captions,
        "version": __version__, "events": events, "remarks": [*remarks(), *remarks_on(engines)],
        "selections": about_selections(selections) if selections else "",
    }))  # fmt: skip
    page.write(foot.replace("{{script}}", script))
    return len(lines)


def _block(
    page: IO[str], number: int, runs: list[dict[str, Any]], score_rows: list[str], texts: Texts
) -> None:
    """Writes one block of runs; `score_rows` holds their scores, which are JSON already."""
    head = page_json({"runs": runs, "texts": list(texts)})
    write_data(page, f"block-{number}", f'{head[:-1]},"said":[{",".join(score_rows)}]}}')


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


def _ends(ends: tuple[float, float]) -> list[float | None]:
    return [end if abs(end) != float("inf") else None for end in ends]
