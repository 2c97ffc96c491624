"""Gives an asynchronous method the documentation of the synchronous method that does the same, so that it is written
once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def twin_of(method: Callable[..., Any], more: str = "") -> Callable[[Method], Method]:
    """Gives an asynchronous method the documentation and the signature of its synchronous twin.

    Args:
        method: The synchronous method.
        more: What only the asynchronous one does, as a sentence.
    """

    def documented(twin: Method) -> Method:
        first = f"Does what `{method.__name__}` does, without blocking the event loop. {more}".rstrip()
        twin.__doc__ = f"{first}\n\n{inspect.getdoc(method)}"
        twin.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return twin

    return documented
