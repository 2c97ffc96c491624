"""Settings that raise when they are compared, read or converted are refused by name."""

import pytest
from support.hostile_values import Unfriendly
from support.scripted_engine import ScriptedEngine

from ragguard import DistractorGuard, RagGuard
from ragguard.errors import InvalidInput
from ragguard.storage.sqlite.store import Store


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("budget_ms", lambda: DistractorGuard(ScriptedEngine(), budget_ms=10**5000)),
        ("pause_s", lambda: DistractorGuard(ScriptedEngine(), pause_s=10**5000)),
        ("prompts", lambda: DistractorGuard(ScriptedEngine(), prompts=Unfriendly())),
        ("when", lambda: RagGuard(ScriptedEngine(), store=None, when=Unfriendly())),
        ("durability", lambda: Store(durability=Unfriendly())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_setting_is_refused_by_name(argument, make):
    with pytest.raises(InvalidInput, match=argument):
        make()
