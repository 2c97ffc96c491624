"""Writes the figures of nano's card between two marks of `CARD.md`: what was measured, beside the targets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

FROM, TO = "<!-- measured: from here -->", "<!-- measured: to here -->"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    target: float | None
    """The least value that is wanted; None where there is no target."""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "reached" if self.value >= self.target else "**missed**"


@dataclass(slots=True)
class Report:
    """All figures that one evaluation measured."""

    cases: int
    reading_cases: int
    model: str = ""
    figures: list[Figure] = field(default_factory=list)
    reading: dict[int, list[float]] = field(default_factory=dict)
    """Hops → exact match with 1 (or 2), 2, 3 … passages."""
    p_answer: dict[str, float] = field(default_factory=dict)
    """Kind of the one passage → mean probability of answering."""
    brier: float = float("nan")
    reliability: list[tuple[float, int, float, float]] = field(default_factory=list)
    """Lower edge, prompts, mean p(answer), share that were answerable."""


def render(report: Report, curve: Path) -> str:
    """The measured part of the card."""
    lines = [
        f"Weights `{report.model}`, {report.cases:,} held-out cases for each line (reading: {report.reading_cases:,}).",
        "",
    ]
    lines += ["| figure | measured | target | |", "|---|---|---|---|"]
    for figure in report.figures:
        target = "" if figure.target is None else f"≥ {figure.target:.2f}"
        lines.append(f"| {figure.name} | {figure.value:.3f} | {target} | {figure.verdict} |")
    lines += ["", f"Reading by number of passages (exact match, {report.reading_cases:,} cases each):", ""]
    lines += ["| passages | " + " | ".join(str(k) for k in range(1, 13)) + " |", "|---" * 13 + "|"]
    for hops, shares in sorted(report.reading.items()):
        cells = ["", *[""] * (hops - 1), *[f"{share:.3f}" for share in shares]]
        lines.append(f"| {hops} hop{'s' * (hops > 1)} |" + " | ".join(cells[1:]) + " |")
    lines += [
        "",
        "How one passage tempts it to answer (mean p(answer) = 1 − p(NO-RESPONSE)):",
        "",
        "| passage | p(answer) |",
        "|---|---|",
    ]
    lines += [f"| {kind.replace('_', ' ')} | {p:.3f} |" for kind, p in report.p_answer.items()]
    lines += [
        "",
        f"Calibration of p(answer), contradictions left out: Brier score {report.brier:.4f}.",
        "",
        "```",
    ]
    lines.append("p(answer)   prompts  mean p  answerable")
    for low, count, mean, share in report.reliability:
        bar = "#" * round(share * 30)
        lines.append(f"{low:.1f} to {low + 0.1:.1f}  {count:>7}   {mean:.3f}       {share:.3f}  {bar}")
    lines += [
        "```",
        "",
        "The training curve (first answer words right, on training rows of growing difficulty):",
        "",
        "```",
    ]
    lines += _curve(curve)
    lines.append("```")
    return "\n".join(lines)


def _curve(path: Path, points: int = 24) -> list[str]:
    if not path.exists():
        return ["(no curve)"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    chosen = rows[:: max(1, len(rows) // points)]
    if rows and chosen[-1] is not rows[-1]:
        chosen.append(rows[-1])
    lines = ["   step  minutes  documents    loss  first word"]
    for row in chosen:
        minutes, bar = row["seconds"] / 60, "#" * round(row["first_word"] * 30)
        counted = f"{row['step']:>7} {minutes:>8.1f} {row['documents']:>10} {row['loss']:>7.3f}"
        lines += [f"{counted} {row['first_word']:>11.3f}  {bar}"]
    return lines


def write_card(report: Report, card: Path, curve: Path) -> None:
    """Puts the figures between the marks of the card."""
    text = card.read_text(encoding="utf-8")
    before, _, rest = text.partition(FROM)
    _, _, after = rest.partition(TO)
    card.write_text(f"{before}{FROM}\n{render(report, curve)}\n{TO}{after}", encoding="utf-8")
