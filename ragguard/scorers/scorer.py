"""The protocol of scorers, ragguard's own and users': a name, a version, and a coroutine over one run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from ragguard.records import Result
from ragguard.scorers.probes.question import Ask
from ragguard.scorers.view import Setting, View
from ragguard.text.language import Language

MODELS = ("engine", "judge", "entailer")
Live = Literal["at once", "so far"]
"""The way in which a scorer looks at a run that has not ended. `at once`: before the others, as it asks about the
last step alone, in one wave. `so far`: afterwards, about all steps so far."""


@runtime_checkable
class Scorer(Protocol):
    """Gives scores and failures about a run.

    A scorer may be a frozen dataclass, whose fields then count as its settings, and may name in `models`
    which of engine, judge and entailer its numbers depend on (all of them by default). A scorer that says
    something of a run before its end has an attribute `live`, see `Live`; without it the scorer waits for the end.
    """

    @property
    def name(self) -> str:
        """The name that stands in every score and failure."""
        ...

    @property
    def version(self) -> str:
        """A text that changes when the same run would get other numbers."""
        ...

    async def score(self, view: View, ask: Ask) -> Sequence[Result]:
        """Returns scores and failures. Engines are reached through `ask` alone."""
        ...


NEW_SETTING: Mapping[str, Any] = MappingProxyType({"ragguard": "new setting"})
"""The metadata of a scorer's field that came after its first release: at its default value the field is left out of the
scorer's version, so that scores of before keep their identity."""


def live_of(scorer: Scorer) -> Live | None:
    """Returns how the scorer looks at a run that has not ended; None where it waits for the end."""
    live: object = getattr(scorer, "live", None)
    return "at once" if live == "at once" else "so far" if live == "so far" else None


def full_version(scorer: Scorer, setting: Setting) -> str:
    """Returns the scorer's version with a digest of its settings, models, prompts, caps and language."""
    settings: dict[str, Any] = {
        "caps": dataclasses.asdict(setting.caps),
        "language": _language_digest(setting.language),
        "prompts": [setting.prompts.identity, setting.judge_prompts.identity],
    }
    fields = getattr(scorer, "__dataclass_fields__", {})
    settings["own"] = {
        name: getattr(scorer, name)
        for name, declared in fields.items()
        if hasattr(scorer, name)
        and not (declared.metadata == NEW_SETTING and getattr(scorer, name) == declared.default)
    }
    if setting.exam.identity:
        settings["exam"] = setting.exam.identity
    for model in getattr(scorer, "models", MODELS):
        settings[model] = getattr(setting, model).fingerprint
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()
    return f"{scorer.version}-{digest[:8]}"


@lru_cache(maxsize=16)
def _language_digest(language: Language) -> str:
    """Returns a digest of a language's phrases, which are many, and equal for all runs."""
    return hashlib.sha256(json.dumps(dataclasses.asdict(language), sort_keys=True).encode()).hexdigest()[:16]
