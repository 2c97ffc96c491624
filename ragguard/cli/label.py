"""`ragguard label STORE`: asks a person for the labels that are worth most, and keeps them in a file."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import click
import typer

from ragguard.cli.terminal import refuse_together, say
from ragguard.errors import InvalidInput
from ragguard.lab.labels.items import GRADED, LabelItem, in_order_of_worth, items_of
from ragguard.lab.labels.label_file import Label, agreements, line_of, read_label_file, write_label_page
from ragguard.lab.labels.people import people_labels
from ragguard.runtime.arguments import check_output
from ragguard.storage.source import open_source
from ragguard.text.plain import counted

_ASKED = {
    "relevance": "Does the passage answer the query?",
    "answer": "Is the answer right?",
    "coverage": "Do the passages answer the question?",
    "grade": "How useful is the passage for the query, from 1 (off the subject or misleading) to 5 (answers it fully)?",
}
_KEYS = "s: skip, q: save and end"


def run(
    data: Annotated[str, typer.Argument(help="A store of scored runs.")],
    by: Annotated[str, typer.Option(help="Your name; it is stored with each label.")] = "",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file of labels; what is in it is not asked again.")
    ] = Path("labels.jsonl"),
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many items to label.")] = 30,
    kind: Annotated[
        str,
        typer.Option(help="relevance or grade (of passages), answer (right?), coverage (of sub-questions)."),
    ] = "relevance",
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write a page that asks in a browser and saves the file of labels; ask nothing in the terminal."
        ),
    ] = None,
    people: Annotated[
        bool,
        typer.Option(
            "--people",
            help="Write the thumbs and annotations of people that the store has as labels; ask nothing.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="The seed of the draw; people who label the same items use one seed.")
    ] = 0,
) -> None:
    """Label the passages or answers whose labels correct the judge's numbers most: one key each.

    The items are drawn at random, more of them if the judge is unsure. Nothing leaves the machine. A second person
    (--by) is asked the same items, and the agreement is shown. Then: report --labels, compare --labels.

    Exit code 0: done, or stopped with q. 2: there is nothing to label, or no name.
    """
    if people:
        refuse_together(("--people", True), ("--by", by or None), ("--page", page))
        _take_people(data, out)
        return
    if page is None and not by.strip():
        raise InvalidInput("--by", by, "your name: it is kept with each label")
    refuse_together(("--by", by or None), ("--page, which asks for the name", page))
    check_output("--out" if page is None else "--page", page or out)
    now = datetime.now(UTC)
    drawn = in_order_of_worth(items_of(open_source(data).scored_runs(), kind), number, seed)
    if page is not None:
        write_label_page(drawn, page, _ASKED)
        say(
            f"{len(drawn)} items in {page}: open it in a browser; then: {_report(data, Path('labels.jsonl'))}"
        )
        return
    done = {label.place for label in _labels_in(out) if label.by == by and not label.skipped}
    todo = [item for item in drawn if item.place not in done]
    with out.open("a", encoding="utf-8") as file:
        for item, value in _answers(todo, len(drawn) - len(todo), len(drawn)):
            file.write(line_of(item, value, by, now) + "\n")
            file.flush()
    labels = _labels_in(out)
    skips = [label.skipped for label in labels if label.by == by]
    also = f", {sum(skips)} skipped," if any(skips) else ""
    say(f"{len(skips) - sum(skips)} labels by {by}{also} in {out}; next: {_report(data, out)}")
    for sentence in agreements(labels):
        say(sentence)


def _take_people(data: str, out: Path) -> None:
    """Writes the labels that people gave without being asked, with their author and time."""
    check_output("--out", out)
    skipped: Counter[str] = Counter()
    labels = [*people_labels(open_source(data).scored_runs(), skipped)]
    for reason, count in skipped.items():
        say(f"no label: {counted(count, 'annotation')} {reason}", error=True)
    if not labels:
        allowed = "thumbs (run.feedback) or annotations of people on answers that a judge has judged"
        raise InvalidInput("--people", f"none in {data}", allowed)
    known = {(label.place, label.by) for label in _labels_in(out)}
    with out.open("a", encoding="utf-8") as file:
        for label in labels:
            if (label.item.place, label.by) not in known:
                file.write(line_of(label.item, label.value, label.by, given_at=label.at) + "\n")
    authors = len({label.by for label in labels})
    people = "person" if authors == 1 else "people"
    say(f"{counted(len(labels), 'label')} by {authors} {people} in {out}; next: {_report(data, out)}")


def _labels_in(path: Path) -> list[Label]:
    """Returns the labels that a file has, skipped items included; none of a file that is empty or not there yet."""
    return read_label_file(path, skipped=True) if path.exists() and path.stat().st_size else []


def _report(data: str, labels: Path) -> str:
    """Returns the command that shows what labels correct."""
    return f"ragguard report {shlex.quote(data)} --labels {shlex.quote(str(labels))}"


def _answers(items: Sequence[LabelItem], done: int, whole: int) -> Iterator[tuple[LabelItem, float | None]]:
    """Asks for one key for each item; yields each answer, None for one that is skipped, until the person ends."""
    for at, item in enumerate(items, done + 1):
        values = (
            {str(one): float(one) for one in GRADED} if item.place[0] == "grade" else {"y": 1.0, "n": 0.0}
        )
        keys = ("1 to 5, " if item.place[0] == "grade" else "y: yes, n: no, ") + _KEYS
        say(f"\n{at} of {whole}   {item.query}\n\n{item.text}\n\n{_ASKED[item.place[0]]}   {keys}")
        while (key := _key()) not in (*values, "s", "q", ""):
            say(keys)
        if key in ("q", ""):
            return
        yield item, values.get(key)


def _key() -> str:
    """Returns the next key; "" at the end of an input that is no terminal."""
    return (click.getchar() if sys.stdin.isatty() else sys.stdin.read(1)).lower()
