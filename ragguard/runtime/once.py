"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class computed_once(Generic[T]):  # noqa: N801 - used as a decorator, as `property` is
    """A property that is computed at first use and then kept in the instance's `__dict__`.

    `functools.cached_property` of Python 3.11 holds one lock for all instances: a fork that happens meanwhile copies
    the lock as held, and the child waits for it without end. This class has no lock: two threads may both compute the
    value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> computed_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
