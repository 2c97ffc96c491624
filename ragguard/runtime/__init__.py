"""Mechanisms that the whole package uses, one of each kind: retry schedule and circuit breaker, limiter, deadline,
background loop, threads, faults and notices, what belongs to one process; and how a package imports lazily what it
exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package.

    `homes` maps each name to the module that defines it; `modules` maps each name that is a module to that module.
    """
    whole = modules or {}
    names = sorted([*homes, *whole])

    def get(name: str) -> Any:
        # Imported here: what it imports itself is a tenth of what `import ragguard` loads.
        from importlib import import_module

        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in whole:
            return import_module(whole[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")

    return get, lambda: names
