"""Engines give probabilities, entailers compare answers, and layers wrap engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragguard.runtime import lazy

if TYPE_CHECKING:
    from ragguard.engines import connect as connect
    from ragguard.engines.base import Continuation as Continuation
    from ragguard.engines.base import Continuations as Continuations
    from ragguard.engines.base import Engine as Engine
    from ragguard.engines.base import EngineInfo as EngineInfo
    from ragguard.engines.base import LabelProbs as LabelProbs
    from ragguard.engines.base import Message as Message
    from ragguard.engines.base import Prompt as Prompt
    from ragguard.engines.base import Sample as Sample
    from ragguard.engines.base import Samples as Samples
    from ragguard.engines.base import Span as Span
    from ragguard.engines.connect import connect_entailer as connect_entailer
    from ragguard.engines.entailer import EngineEntailer as EngineEntailer
    from ragguard.engines.entailer import Entailer as Entailer
    from ragguard.engines.entailment import Entailments as Entailments
    from ragguard.engines.entailment import Pair as Pair
    from ragguard.engines.http.server import OpenAIEngine as OpenAIEngine
    from ragguard.engines.http.server import VllmEngine as VllmEngine
    from ragguard.engines.layers import Budget as Budget
    from ragguard.engines.layers import Cache as Cache
    from ragguard.engines.layers import Coalesce as Coalesce
    from ragguard.engines.layers import Patience as Patience
    from ragguard.engines.layers import Priority as Priority
    from ragguard.engines.layers import Retry as Retry
    from ragguard.engines.layers.budget import Account as Account
    from ragguard.engines.layers.budget import Price as Price
    from ragguard.engines.local.hf import HfEngine as HfEngine
    from ragguard.engines.local.inprocess import InProcessVllmEngine as InProcessVllmEngine
    from ragguard.engines.nano.nano_engine import NanoEngine as NanoEngine
    from ragguard.engines.nli_models import ClassifyEntailer as ClassifyEntailer
    from ragguard.engines.nli_models import CrossEncoder as CrossEncoder

_HOMES = {
    name: module
    for module, names in {
        "ragguard.engines.base": (
            "Continuation Continuations Engine EngineInfo LabelProbs Message Prompt Sample Samples Span"
        ),
        "ragguard.engines.connect": "connect_entailer",
        "ragguard.engines.entailer": "EngineEntailer Entailer",
        "ragguard.engines.entailment": "Entailments Pair",
        "ragguard.engines.http.server": "OpenAIEngine VllmEngine",
        "ragguard.engines.layers": "Budget Cache Coalesce Patience Priority Retry",
        "ragguard.engines.layers.budget": "Account Price",
        "ragguard.engines.local.hf": "HfEngine",
        "ragguard.engines.local.inprocess": "InProcessVllmEngine",
        "ragguard.engines.nano.nano_engine": "NanoEngine",
        "ragguard.engines.nli_models": "ClassifyEntailer CrossEncoder",
    }.items()
    for name in names.split()
}
"""The module in which each name is defined, by the name."""

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
