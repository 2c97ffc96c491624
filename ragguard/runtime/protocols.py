"""Protocols checked on objects of the user's."""

from __future__ import annotations

from typing import Protocol, TypeGuard, TypeVar

P = TypeVar("P")


def implements(value: object, protocol: type[P]) -> TypeGuard[P]:
    """Returns whether an object has every member of a protocol, its own or by `__getattr__`.

    `isinstance` says so on Python 3.11 alone: later versions ignore `__getattr__`, and would refuse an object that
    hands on what it does not define to another one.
    """
    return all(hasattr(value, name) for name in _members(protocol))


def _members(protocol: type) -> frozenset[str]:
    return frozenset(
        name
        for base in protocol.__mro__
        if getattr(base, "_is_protocol", False) and base is not Protocol
        for name in (*vars(base), *vars(base).get("__annotations__", ()))
        if not name.startswith("_")
    )
