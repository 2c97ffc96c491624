"""A constructor that takes the fields of a dataclass as its arguments, so that they are described once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
Owner = TypeVar("Owner")
Description = TypeVar("Description")


def takes(
    description: Callable[P, Description],
) -> Callable[[Callable[[Owner, Description], None]], Callable[Concatenate[Owner, P], None]]:
    """Makes a method that takes a description one that takes the description's own arguments.

    Type checkers, editors and `help()` see these arguments with their types and defaults; `description` is an attribute
    of the method.
    """

    def flattened(method: Callable[[Owner, Description], None]) -> Callable[Concatenate[Owner, P], None]:
        @functools.wraps(method)
        def flat(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> None:
            method(self, description(*args, **kwargs))

        flat.description = description  # type: ignore[attr-defined]
        vars(description)["__init__"].__qualname__ = method.__qualname__  # errors name what was called
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        signature = inspect.signature(description)
        flat.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *signature.parameters.values()], return_annotation=None
        )
        return flat

    return flattened
