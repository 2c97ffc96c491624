"""The tables of `docs/telemetry.md`, from the names themselves: `python -m ragguard.sinks.reference`."""

from __future__ import annotations

from ragguard.sinks import names


def tables() -> str:
    """Every attribute, event and metric as Markdown."""
    lines: list[str] = []
    for group, found in names.ATTRIBUTES.items():
        lines += [f"### {group}", "", "| attribute | type | stands on | meaning |", "|---|---|---|---|"]
        for name in found:
            kept = " *(only when content is captured)*" if name.content else ""
            lines.append(f"| `{name}` | {name.type} | {', '.join(name.places)} | {name.meaning}{kept} |")
        lines.append("")
    lines += ["### With an index in the name", "", "| attribute | meaning |", "|---|---|"]
    lines += [f"| `{pattern}` | {meaning} |" for pattern, meaning in names.PATTERNS.items()]
    lines += ["", "### Events and log records", "", "| name | meaning |", "|---|---|"]
    lines += [f"| `{names.EVENT_EVALUATION}` | one score, or one failure with `error.type` |"]
    lines += ["", "### Metrics", "", "| metric | kind | unit | meaning |", "|---|---|---|---|"]
    for metric, (kind, unit, meaning) in names.METRICS.items():
        lines.append(f"| `{metric}` | {kind} | {unit} | {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables(), end="")
