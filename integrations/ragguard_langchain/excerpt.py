"""Some passages cut out of a text that holds them, with the frame that each of them stands in."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def without(
    text: str, passages: Sequence[str], stays: Sequence[bool], render: Callable[[Sequence[str]], str]
) -> str:
    """The text without the passages that do not stay.

    What lies between two passages (a separator, a number, a tag) goes with the dropped one, so that the rest
    reads as if it had never been there. Where the passages are not all in the text, word for word and in order,
    those that stay are rendered anew.
    """
    places = _places(text, passages)
    if places is None:
        return render([passage for passage, stay in zip(passages, stays, strict=True) if stay])
    if not any(stays):
        return ""
    first = next(i for i, stay in enumerate(stays) if stay)
    # Before the first that stays, the frame of the text's own first passage; then each with what led to it.
    parts = [text[: places[0][0]], text[slice(*places[first])]]
    parts += [text[places[i - 1][1] : places[i][1]] for i in range(first + 1, len(places)) if stays[i]]
    parts.append(text[places[-1][1] :])
    return "".join(parts)


def _places(text: str, passages: Sequence[str]) -> list[tuple[int, int]] | None:
    """Where each passage stands in the text; None where one is not found behind the one before it."""
    places, at = [], 0
    for passage in passages:
        begin = text.find(passage, at) if passage else -1
        if begin < 0:
            return None
        at = begin + len(passage)
        places.append((begin, at))
    return places
