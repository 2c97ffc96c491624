"""A guard whose verdicts are known: for it, every second passage of a shelf is a distractor."""

from __future__ import annotations

import re
from typing import Any

from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard


def judging(text: str, label: str) -> float | None:
    """A reader and judge for whom every second passage of a shelf is a distractor."""
    misleads = re.search(r"\w 1 about|\w 3 about", text) is not None
    return {"NO-RESPONSE": 0.1, "A": 0.1 if misleads else 0.9, "B": 0.9 if misleads else 0.1}.get(label)


def guarding(engine: ScriptedEngine | None = None, **settings: Any) -> DistractorGuard:
    """A guard that drops `name-1` and `name-3` of any shelf."""
    return DistractorGuard(engine or ScriptedEngine(label=judging), **{"budget_ms": 5_000, **settings})
