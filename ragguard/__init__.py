"""ragguard measures, while an agent runs, what each retrieval did for the model that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard._version import __version__
from ragguard.runtime import lazy

if TYPE_CHECKING:
    from ragguard import errors as errors
    from ragguard import metrics as metrics
    from ragguard import splitters as splitters
    from ragguard import traces as traces
    from ragguard import world as world
    from ragguard.analysis.hops import print_hops as print_hops
    from ragguard.capture.anywhere import current_run as current_run
    from ragguard.capture.anywhere import retrieval as retrieval
    from ragguard.capture.anywhere import retrieved as retrieved
    from ragguard.capture.recorder import paused as paused
    from ragguard.client import RagGuard as RagGuard
    from ragguard.engines.base import Engine as Engine
    from ragguard.engines.connect import connect as connect
    from ragguard.engines.entailer import Entailer as Entailer
    from ragguard.engines.layers.budget import Account as Account
    from ragguard.engines.layers.budget import Price as Price
    from ragguard.engines.prompts import PromptSet as PromptSet
    from ragguard.engines.prompts import load_prompts as load_prompts
    from ragguard.guard import DistractorGuard as DistractorGuard
    from ragguard.inputs.reading import runs_from as runs_from
    from ragguard.records import Advice as Advice
    from ragguard.records import Failure as Failure
    from ragguard.records import Passage as Passage
    from ragguard.records import RetrievalStep as RetrievalStep
    from ragguard.records import Run as Run
    from ragguard.records import Score as Score
    from ragguard.records import ScoredRun as ScoredRun
    from ragguard.scorers.scorer import Scorer as Scorer
    from ragguard.scorers.view import Caps as Caps
    from ragguard.storage.files.runfile import read_lines as read_lines
    from ragguard.storage.files.runfile import read_runs as read_runs
    from ragguard.storage.files.runfile import write_runs as write_runs
    from ragguard.storage.files.runfile import write_scores as write_scores
    from ragguard.storage.source import read_scored as read_scored
    from ragguard.telemetry.sink import Sink as Sink

_HOMES = {
    name: module
    for module, names in {
        "ragguard.analysis.hops": "print_hops",
        "ragguard.capture.anywhere": "current_run retrieval retrieved",
        "ragguard.capture.recorder": "paused",
        "ragguard.client": "RagGuard",
        "ragguard.engines.base": "Engine",
        "ragguard.engines.connect": "connect",
        "ragguard.engines.entailer": "Entailer",
        "ragguard.engines.layers.budget": "Account Price",
        "ragguard.engines.prompts": "PromptSet load_prompts",
        "ragguard.guard": "DistractorGuard",
        "ragguard.inputs.reading": "runs_from",
        "ragguard.records": "Advice Failure Passage RetrievalStep Run Score ScoredRun",
        "ragguard.scorers.scorer": "Scorer",
        "ragguard.scorers.view": "Caps",
        "ragguard.storage.files.runfile": "read_lines read_runs write_runs write_scores",
        "ragguard.storage.source": "read_scored",
        "ragguard.telemetry.sink": "Sink",
    }.items()
    for name in names.split()
}
"""The module in which each name is defined, by the name."""
_MODULES = {
    "errors": "ragguard.errors",
    "metrics": "ragguard.metrics",
    "splitters": "ragguard.splitters",
    "traces": "ragguard.traces",
    "world": "ragguard.world",
}

__all__ = ["__version__", *_HOMES, *_MODULES]
__getattr__, __dir__ = lazy(__name__, _HOMES, _MODULES)
