"""A comparison as Markdown, such as a comment on a pull request."""

from __future__ import annotations

from ragguard.analysis.comparison import UNDECIDED, MovedQuestion
from ragguard.analysis.gate_check import GateCheck
from ragguard.analysis.text import question_line
from ragguard.analysis.validation.tables import Table
from ragguard.analysis.verdict import Change

MOST = 20
"""The most questions that are listed."""


def comment_of(checked: GateCheck) -> str:
    """Returns the verdict, the metrics on which it and the bounds rest, each bound with its difference, what labels
    correct, and the questions that fell."""
    found = checked.found
    rows = tuple(
        (change.metric, change.questions, change.before, change.after, change.shown, _verdict(change))
        for change in checked.decisive
    )
    columns = ("metric", "questions", "before", "after", "difference (95 %)", "verdict")
    notes = filter(None, (found.left_out, checked.documents, *checked.thin, *found.remarks))
    table = Table("changes", found.verdict.sentence, columns, rows, notes=tuple(notes)).markdown()
    parts = [table]
    if checked.gates:
        parts.append("".join(f"- {gate if gate.passed else f'**{gate}**'}\n" for gate in checked.gates))
    if checked.changes is not None:
        corrected = tuple((name, one.shown, one.verdict) for name, one in checked.changes.differences.items())
        titles, remarks = ("metric", "difference (95 %)", "verdict"), tuple(checked.changes.remarks)
        parts.append(
            Table("corrected", "Corrected by labels of people", titles, corrected, notes=remarks).markdown()
        )
    if found.fell:
        more = len(found.fell) - MOST
        lines = [*map(_line, found.fell[:MOST]), *([f"- … and {more:,} more"] if more > 0 else [])]
        parts.append(f"<details><summary>{len(found.fell):,} of {found.paired:,} questions fell</summary>\n")
        parts.append("\n".join(lines) + "\n\n</details>\n")
    return "\n".join(parts)


def _line(item: MovedQuestion) -> str:
    """Returns a question as code, in which no markup and no @name means anything, and how far it fell."""
    moves = ", ".join(f"{move.metric} {move.before:.3f} → {move.after:.3f}" for move in item.moves)
    return f"- `{question_line(item.question).replace('`', chr(39))}`: {moves}"


def _verdict(change: Change) -> str:
    return "not decisive" if change.verdict in UNDECIDED else change.verdict
