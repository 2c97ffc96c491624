"""The file of labels: JSON lines, one for each label that a person gave, or for each item that has no label yet.

`ragguard label --page` writes a page, one HTML file that a browser opens without a server, which saves such a file. The
calibrations of the guard and of advice read runs with what people said of them.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from statistics import fmean

from ragguard.analysis.page import content_policy, page_json, write_data
from ragguard.errors import InvalidInput
from ragguard.lab.labels.items import GRADED, METRIC_OF, LabelItem, Place, digest_of
from ragguard.metrics.agreement import cohen_kappa
from ragguard.records import Passage, RetrievalStep, Run
from ragguard.runtime.faults import why_unreadable

_PAGE_FILES = files("ragguard.lab.labels") / "page_files"
_MODEL = re.compile(
    r"gpt|claude|gemini|llama|qwen|mistral|deepseek|gemma|grok|command-r|\bjev\b|nano:|smol|openai|anthropic|vllm|\bllm\b",
    re.IGNORECASE,
)
FEWEST = 10
"""The least number of items from which agreement is told."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label: who gave it, when, to which item."""

    place: Place
    value: float
    """1 for yes, 0 for no; of a grade 1 to 5; nan for an item that the person skipped."""
    by: str
    digest: str
    judge: str
    is_model: bool = False
    """True where the line says that a model gave it."""
    drawn_ns: int = 0
    """The time at which the items were drawn from the store, in ns since 1970; 0 if the line does not say."""

    at: str = ""
    """The time at which it was given, in ISO 8601."""
    unasked: bool = False
    """True for a thumb or an annotation: nobody drew the item and asked for it."""

    @property
    def skipped(self) -> bool:
        """True if the person gave no label."""
        return math.isnan(self.value)


def line_of(
    item: LabelItem,
    value: float | None = None,
    by: str = "",
    drawn: datetime | None = None,
    *,
    given_at: str | None = None,
) -> str:
    """Returns a line of the file; without a value one that waits to be filled in, or with a name one that was skipped.

    Args:
        item: The item.
        value: The label.
        by: The person who gave it, or who skipped it.
        drawn: When the items were drawn from the store. None: now.
        given_at: The time at which somebody gave the label without being asked, "" if it is not known. None: the
            person was asked for it, now.
    """
    kind, run, step, position = item.place
    now = datetime.now(UTC)
    found = {
        "label": None if value is None else int(value), "by": by,
        "at": given_at if given_at is not None else now.isoformat(timespec="seconds") if by else "",
        "kind": kind, "query": item.query, "text": item.text, "run": run, "step": step, "position": position,
        "digest": item.digest, "judge": item.judge, "drawn": (drawn or now).isoformat(),
    }  # fmt: skip
    if value is None and by:
        found["skipped"] = True
    if given_at is not None:
        found["unasked"] = True
    return json.dumps(found, ensure_ascii=False)


def read_label_file(path: str | Path, *, models: bool = False, skipped: bool = False) -> list[Label]:
    """Returns the labels of a file; a later one of a person replaces an earlier one, and lines without one are left
    out.

    Args:
        path: The file.
        models: True where labels that a model gave, and that say so, are taken, too.
        skipped: True to return what a person skipped, too, as a label whose value is nan.
    """
    found: dict[tuple[Place, str], Label] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        allowed = f"a file that `ragguard label` wrote ({why_unreadable(error)})"
        raise InvalidInput("--labels", str(path), allowed) from error
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        label = _label(where, line) if line.strip() else None
        if label is not None:
            if label.is_model and not models:
                allowed = "labels of people; a model's correct nothing, as it errs like a judge"
                raise InvalidInput(where, label.by, allowed)
            found[label.place, label.by] = label
    if not skipped:
        found = {key: label for key, label in found.items() if not label.skipped}
    if not found:
        raise InvalidInput("--labels", str(path), "at least one label; `ragguard label STORE` asks for them")
    return list(found.values())


def _label(where: str, line: str) -> Label | None:
    """Returns the label of a line; None where the line waits for one."""
    try:
        data = json.loads(line)
        place = data["kind"], str(data["run"]), str(data["step"]), int(data["position"])
        said, by = data["label"], str(data["by"]).strip()
        digest, judge = str(data["digest"]), str(data["judge"])
        drawn = datetime.fromisoformat(data["drawn"]) if data.get("drawn") else None
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise InvalidInput(where, line[:60], "a line that `ragguard label` wrote") from error
    skips = said is None and data.get("skipped") is True
    if said is None and not skips:
        return None
    allowed = GRADED if place[0] == "grade" else (0, 1)
    if (not skips and said not in allowed) or place[0] not in METRIC_OF:
        raise InvalidInput(
            where, said, f"a `label` from {allowed[0]} to {allowed[-1]}, of a kind that there is"
        )
    is_model = data.get("model") is True
    if not by or (looks_like_model(by) and not is_model):
        raise InvalidInput(where, by, 'a person in `by`; say "model": true where a model gave the label')
    value = math.nan if skips else float(said)
    drawn_ns = 0 if drawn is None else round(drawn.timestamp() * 1e9)
    at, unasked = str(data.get("at") or ""), data.get("unasked") is True
    return Label(
        place,
        value,
        by,
        digest=digest,
        judge=judge,
        is_model=is_model,
        drawn_ns=drawn_ns,
        at=at,
        unasked=unasked,
    )


def looks_like_model(by: str) -> bool:
    """True for the name of a model in the place of a person's."""
    return _MODEL.search(by) is not None


def by_place(labels: Iterable[Label]) -> dict[Place, Label]:
    """Returns one label for each item that is not skipped by all: the mean of what several people gave."""
    found: dict[Place, list[Label]] = defaultdict(list)
    for label in labels:
        if not label.skipped:
            found[label.place].append(label)
    return {place: replace(some[0], value=fmean(one.value for one in some)) for place, some in found.items()}


def agreements(labels: Sequence[Label]) -> list[str]:
    """Returns a sentence for each pair of people: how many items both labelled, and Cohen's κ on these, of grades with
    quadratic weights; pairs of fewer than ten are left out."""
    people: dict[tuple[bool, str], dict[Place, float]] = defaultdict(dict)
    for label in labels:
        if not label.skipped:
            people[label.place[0] == "grade", label.by][label.place] = label.value
    found = []
    for ((graded, one), first), ((also, other), second) in combinations(sorted(people.items()), 2):
        both = [place for place in first if place in second]
        if graded == also and len(both) >= FEWEST:
            kappa = cohen_kappa([first[p] for p in both], [second[p] for p in both], quadratic=graded)
            what = "quadratic κ" if graded else "κ"
            found.append(f"{one} and {other} both labelled {len(both)} items: {what} {kappa:.2f}")
    return found


def write_label_page(items: Sequence[LabelItem], path: Path, asked: Mapping[str, str]) -> None:
    """Writes the page, which saves labels as the file that `read_label_file` reads.

    Args:
        items: The items in the order in which they are shown.
        path: The file to write.
        asked: The question that a person answers, by the kind of item.
    """
    page, style, script = (
        (_PAGE_FILES / f"label.{end}").read_text(encoding="utf-8") for end in ("html", "css", "js")
    )
    data = io.StringIO()
    lines = [json.loads(line_of(item)) for item in items]
    write_data(data, "items", page_json({"items": lines, "asked": asked}))
    for name, text in (("policy", content_policy(style, script)), ("style", style), ("script", script)):
        page = page.replace(f"{{{{{name}}}}}", text)
    path.write_text(page.replace("<!-- data -->", data.getvalue()), encoding="utf-8")


def with_labels(runs: Iterable[Run], labels: Sequence[Label]) -> Iterator[Run]:
    """Yields the runs with labels applied: a labelled passage is gold or not, and an answer called right becomes a
    reference.

    Marks of gold that the runs bring themselves are removed. Raises InvalidInput if a label is about
    another text.
    """
    known = by_place(labels)
    for run in runs:
        steps = [_labelled_step(run, step, known) for step in run.steps]
        answer = known.get(("answer", run.id, "", 0))
        references = run.references
        if answer is not None and run.answer:
            check_text(answer, digest_of("answer", run.question, run.answer))
            references = references or ([run.answer] if answer.value > 0.5 else None)
        yield replace(run, steps=steps, references=references)


def _labelled_step(run: Run, step: RetrievalStep, known: Mapping[Place, Label]) -> RetrievalStep:
    gold: dict[str, bool] = {}
    for position, passage in enumerate(step.retrieved, 1):
        if label := known.get(("relevance", run.id, step.id, position)):
            check_text(label, digest_of("relevance", step.query or run.question, passage.text))
            gold[passage.text] = label.value > 0.5

    def told(passages: Sequence[Passage]) -> list[Passage]:
        found = []
        for passage in passages:
            rest = {name: value for name, value in passage.metadata.items() if name not in ("gold", "kind")}
            more = {"gold": gold[passage.text]} if passage.text in gold else {}
            found.append(replace(passage, grade=None, metadata=rest | more))
        return found

    return replace(step, passages=told(step.passages), candidates=told(step.candidates))


def check_text(label: Label, digest: str) -> None:
    """Raises InvalidInput where a label is about another text than the one with this digest."""
    if label.digest != digest:
        allowed = f"{digest}: the text is another one than was labelled; label it again"
        raise InvalidInput(f"label of run {label.place[1]}", label.digest, allowed)
