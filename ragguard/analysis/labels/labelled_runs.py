"""Runs with what people said of them, for the calibrations of the guard and of advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ragguard.analysis.labels.items import Place, digest_of
from ragguard.analysis.labels.label_file import Label, by_place
from ragguard.errors import InvalidInput
from ragguard.records import Passage, RetrievalStep, Run


def with_labels(runs: Iterable[Run], labels: Sequence[Label]) -> Iterator[Run]:
    """Yields the runs with labels applied: a labelled passage is gold or not, and an answer called right becomes a
    reference.

    Marks of gold that the runs bring themselves are removed. Raises InvalidInput if a label is about
    another text.
    """
    known = by_place(labels)
    for run in runs:
        steps = [_step(run, step, known) for step in run.steps]
        answer = known.get(("answer", run.id, "", 0))
        references = run.references
        if answer is not None and run.answer:
            _check(answer, run.question, run.answer)
            references = references or ([run.answer] if answer.value > 0.5 else None)
        yield replace(run, steps=steps, references=references)


def _step(run: Run, step: RetrievalStep, known: Mapping[Place, Label]) -> RetrievalStep:
    gold: dict[str, bool] = {}
    listed = step.candidates or step.passages
    for position, passage in enumerate(listed, 1):
        label = known.get(("relevance", run.id, step.id, position))
        if label is not None:
            _check(label, step.query or run.question, passage.text)
            gold[passage.text] = label.value > 0.5

    def told(passages: Sequence[Passage]) -> list[Passage]:
        return [_passage(passage, gold.get(passage.text)) for passage in passages]

    return replace(step, passages=told(step.passages), candidates=told(step.candidates))


def _passage(passage: Passage, gold: bool | None) -> Passage:
    rest = {name: value for name, value in passage.metadata.items() if name not in ("gold", "kind")}
    return replace(passage, grade=None, metadata=rest if gold is None else {**rest, "gold": gold})


def _check(label: Label, query: str, text: str) -> None:
    kind, run, *_ = label.place
    if label.digest != (now := digest_of(kind, query, text)):
        raise InvalidInput(
            f"label of run {run}",
            label.digest,
            f"{now}: the text is another one than was labelled; label it again",
        )
