"""An engine that answers instead of nano in parts that this process scores."""

import pytest
from support.scripted_engine import ScriptedEngine


@pytest.fixture
def engine(monkeypatch):
    """The engine; `fault` decides which calls fail."""
    scripted = ScriptedEngine(label=lambda text, label: 0.4)
    monkeypatch.setattr("ragguard.scorers.settings.connect", lambda *args, **more: scripted)
    return scripted
