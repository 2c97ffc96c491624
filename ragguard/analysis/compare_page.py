"""Writes a comparison of two sets of runs as one self-contained page without a script: the verdict in a sentence, the
differences with their intervals, the questions that rose and fell, and what decided the answers before and after."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from ragguard._version import __version__
from ragguard.analysis.cause_tables import about_causes
from ragguard.analysis.comparison import LEAST_MOVE, Change, Comparison, MovedQuestion, plain_name
from ragguard.analysis.gate_check import GateCheck
from ragguard.analysis.page import content_policy
from ragguard.analysis.wording import question_line
from ragguard.facts.causes import CAUSES
from ragguard.metrics.registry import METRICS, shown_rank
from ragguard.text.plain import counted
from ragguard.text.secret_filter import strip_control_characters

_KINDS = {"better": "good", "worse": "bad", "mixed": "warn", "changed": "calm"}
"""The class of a verdict's words; others are soft."""
_LISTED = 50
"""The most questions of a list."""
_WIDE, _HIGH = 320, 22
"""The size of the picture of one difference."""
_SIDE = 300
"""The width and height of the picture of the questions."""


def compare_html(checked: GateCheck, before: str, after: str) -> str:
    """Returns the page.

    Args:
        checked: The comparison, with the bounds that it was held to.
        before: The name of the side as it was.
        after: The name of the side as it is now.
    """
    found = checked.found
    style = (files("ragguard.analysis") / "page_files" / "page.css").read_text(encoding="utf-8")
    word = found.verdict.word
    body = [
        f"<header><h1>{_text(before)} → {_text(after)}</h1><p class='lede'>Is the second side better?</p>"
        f"<p class='verdict-line {_KINDS.get(word, 'soft')}'>{_text(found.verdict.sentence)}</p></header>",
        "<div class='answers compare'>",
        _section("Differences, with their 95 % intervals", _differences(found)),
        _section("The questions before and after", _questions(found)),
        _section("What decided the answers", _causes(found)),
        _section("Bounds", "".join(f"<p>{_text(str(gate))}</p>" for gate in checked.gates)),
        "</div><main class='two'>",
        _section(found.about_fell, _moved(found.fell)),
        _section(f"{counted(len(found.rose), 'question')} rose, and fell in nothing", _moved(found.rose)),
        "</main><footer>",
        *(f"<p>{_text(note)}</p>" for note in filter(None, (checked.documents, found.about_p, *found.notes))),
        f"<p>Made by ragguard {__version__}. Everything on this page is in this file.</p></footer>",
    ]
    return (
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style, "")}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{_text(before)} → {_text(after)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
            f"{''.join(body)}\n</body>\n</html>\n"
        )
        .encode("utf-8", "replace")
        .decode("utf-8")
    )


def _text(text: str) -> str:
    return escape(strip_control_characters(text))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _title(metric: str) -> str:
    """Returns the title of a metric, if it has one, behind its plain name."""
    known = METRICS.get(metric.partition(".")[0])
    title, plain = metric if known is None else known.title, plain_name(metric)
    return f"{plain[0].upper()}{plain[1:]}: {title}" if plain else title


def _differences(found: Comparison) -> str:
    shown = sorted(
        found.decisive, key=lambda one: (shown_rank(one.metric.partition(".")[0]), one.p_corrected)
    )
    rows = [
        (
            f"{_text(_title(change.metric))}<span class='document'>{_text(change.metric)}</span>",
            _text(change.shown),
            f"<span class='{_KINDS.get(change.verdict, 'soft')}'>{_text(change.verdict)}</span>",
            _interval(change),
            f"{change.p_corrected:.3f}",
            f"{change.before:.3f} → {change.after:.3f}",
            f"{change.questions:,}",
        )
        for change in shown
    ]
    titles = (
        "metric",
        "difference (95 %)",
        "verdict",
        "worse | better",
        "p",
        "before → after",
        "questions",
    )
    return _table(titles, rows)


def _interval(change: Change) -> str:
    """Returns the picture of a difference, on a scale of its own: a dot with its interval beside the line of no
    difference, better to the right."""
    sign = -1 if change.direction == "lower" else 1
    ends = [change.low, change.high] if math.isfinite(change.low) else []
    most = max(abs(end) for end in (change.difference, *ends)) or 1.0

    def place(value: float) -> float:
        return _WIDE / 2 + sign * value / most * (_WIDE / 2 - 6)

    colour = {"better": "good", "worse": "bad"}.get(change.verdict, "soft")
    whisker = "" if not ends else (
        f'<line x1="{place(change.low):.1f}" x2="{place(change.high):.1f}" y1="{_HIGH / 2}" y2="{_HIGH / 2}" '
        f'stroke="var(--{colour})" stroke-width="3"/>'
    )  # fmt: skip
    return (
        f'<svg role="img" aria-label="{_text(f"{change.metric} {change.shown}")}" viewBox="0 0 {_WIDE} {_HIGH}" '
        f'width="{_WIDE}"><line x1="{_WIDE / 2}" x2="{_WIDE / 2}" y1="0" y2="{_HIGH}" stroke="var(--line)"/>{whisker}'
        f'<circle cx="{place(change.difference):.1f}" cy="{_HIGH / 2}" r="5" fill="var(--{colour})"/></svg>'
    )


def _questions(found: Comparison) -> str:
    """Returns the picture of the questions that moved in that metric of the verdict in which most places differ: before
    to the right, after upwards, so that those above the diagonal rose."""
    if not found.decisive:
        return ""
    points: defaultdict[str, Counter[tuple[float, float, str]]] = defaultdict(Counter)
    for one in (*found.fell, *found.rose):
        for move in one.moves:
            points[move.metric][move.before, move.after, "good" if move.better else "bad"] += 1
    change = max(found.decisive, key=lambda change: len(points[change.metric]))
    metric, places = change.metric, points[change.metric]
    if not places:
        return f"<p>No question moved by {LEAST_MOVE:g} or more in {_text(metric)}.</p>"
    low = min(min(before, after) for before, after, _ in places)
    room = max(max(before, after) for before, after, _ in places) - low or 1.0

    def place(value: float) -> float:
        return 12 + (value - low) / room * (_SIDE - 24)

    drawn = [
        f'<line x1="12" y1="{_SIDE - 12}" x2="{_SIDE - 12}" y2="12" stroke="var(--line)"/>',
        *(
            f'<circle cx="{place(before):.1f}" cy="{_SIDE - place(after):.1f}" r="{3.5 * math.sqrt(count):.1f}" '
            f'fill="var(--{kind})" fill-opacity="0.6"/>'
            for (before, after, kind), count in places.items()
        ),
        f'<text x="{_SIDE - 12}" y="{_SIDE - 2}" text-anchor="end" class="soft">before →</text>',
        '<text x="2" y="11" class="soft">after ↑</text>',
    ]
    better, worse = (
        sum(count for (*_, kind), count in places.items() if kind == one) for one in ("good", "bad")
    )
    sides = ("under", "above") if change.direction == "lower" else ("above", "under")
    said = (
        f"{_title(metric)} of {counted(change.questions, 'question')}: {better:,} became better ({sides[0]} the line), "
        f"{worse:,} worse ({sides[1]} it)"
    )
    if still := change.questions - better - worse:
        said += f"; {still:,} moved by less than {LEAST_MOVE:g} and have no dot"
    said += f". From {low:.2f} to {low + room:.2f}; a larger dot is several questions"
    box = f'viewBox="0 0 {_SIDE} {_SIDE}" width="{_SIDE}"'
    picture = f'<svg role="img" aria-label="{_text(said)}" {box}>{"".join(drawn)}</svg>'
    return f"<figure class='moves'>{picture}<figcaption>{_text(said)}.</figcaption></figure>"


def _causes(found: Comparison) -> str:
    rows = [
        (
            _text(CAUSES.get(one.cause, one.cause)),
            f"{one.before:.0%} → {one.after:.0%}",
            f"{one.difference:+.0%} ({one.low:+.0%} … {one.high:+.0%})",
            f"{one.p:.3f}",
            f"{one.came:,}",
            f"{one.went:,}",
        )
        for one in found.causes
    ]
    return (
        _table(("what decided the answer", "share", "difference (95 %)", "p", "came", "went"), rows)
        + f"<p class='soft'>{_text(about_causes(found.causes) + found.about_right)}</p>"
        if rows
        else ""
    )


def _moved(questions: Sequence[MovedQuestion]) -> str:
    rows = "".join(
        f"<li><span class='asked'>{_text(question_line(one.question))}</span> "
        f"<span class='soft'>{_text(one.shown)}</span></li>"
        for one in questions[:_LISTED]
    )
    more = f"<p class='soft'>… and {len(questions) - _LISTED:,} more.</p>" if len(questions) > _LISTED else ""
    return f"<ol class='moved'>{rows}</ol>{more}" if rows else "<p>None.</p>"


def _table(titles: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; titles are texts, cells are markup."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
