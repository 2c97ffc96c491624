"""ragguard tells, while an agent runs, what each retrieval did for the model that reads it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragguard._version import __version__

if TYPE_CHECKING:
    from ragguard import metrics as metrics
    from ragguard import world as world
    from ragguard.capture.anywhere import current_run as current_run
    from ragguard.capture.anywhere import retrieval as retrieval
    from ragguard.capture.anywhere import retrieved as retrieved
    from ragguard.capture.context import paused as paused
    from ragguard.client import RagGuard as RagGuard
    from ragguard.engines.connect import connect as connect
    from ragguard.guard import DistractorGuard as DistractorGuard
    from ragguard.records import Failure as Failure
    from ragguard.records import Passage as Passage
    from ragguard.records import RetrievalStep as RetrievalStep
    from ragguard.records import Run as Run
    from ragguard.records import Score as Score

# Name → where it is defined; loaded when it is first used, so that `import ragguard` stays cheap.
_HOMES = {
    "DistractorGuard": "ragguard.guard",
    "Failure": "ragguard.records",
    "Passage": "ragguard.records",
    "RagGuard": "ragguard.client",
    "RetrievalStep": "ragguard.records",
    "Run": "ragguard.records",
    "Score": "ragguard.records",
    "connect": "ragguard.engines.connect",
    "current_run": "ragguard.capture.anywhere",
    "paused": "ragguard.capture.context",
    "retrieval": "ragguard.capture.anywhere",
    "retrieved": "ragguard.capture.anywhere",
}
_MODULES = ("errors", "metrics", "world")

__all__ = [
    "DistractorGuard",
    "Failure",
    "Passage",
    "RagGuard",
    "RetrievalStep",
    "Run",
    "Score",
    "__version__",
    "connect",
    "current_run",
    "errors",
    "metrics",
    "paused",
    "retrieval",
    "retrieved",
    "world",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"ragguard.{name}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragguard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
