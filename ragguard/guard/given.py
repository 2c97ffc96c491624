"""Takes the passages that a guard is given, in any of the forms that frameworks and plain code have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ragguard.capture.shapes import documents_in
from ragguard.capture.snapshot import passage_of
from ragguard.errors import InvalidInput
from ragguard.records import Passage


def given_passages(given: Sequence[Any]) -> list[Passage]:
    """Returns Passages, texts or a framework's documents as Passages; raises InvalidInput for anything else."""
    allowed = "a list of Passage, of texts, or of a framework's documents"
    if isinstance(given, str | Passage) or not isinstance(given, Iterable):
        raise InvalidInput("passages", given, allowed)
    try:
        passages = [Passage(one) if isinstance(one, str) else _passage(one) for one in given]
    except Exception as error:
        raise InvalidInput("passages", given, allowed) from error
    for passage in passages:
        if not isinstance(passage, Passage) or not isinstance(passage.text, str):
            raise InvalidInput("passages", getattr(passage, "text", passage), allowed)
    return passages


def _passage(item: object) -> Passage:
    """Returns a passage as it is, and that of a framework's document, with or without a score."""
    found = documents_in(item)
    if isinstance(item, Passage) or not found:
        return cast(Passage, item)
    return passage_of(item)
