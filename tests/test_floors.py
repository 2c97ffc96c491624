"""A file imports only from floors below its own; the integrations know ragguard, never the reverse."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = {
    "ragguard._version": 0, "ragguard._lazy": 0, "ragguard.records": 0, "ragguard.errors": 0,
    "ragguard.secrets": 0, "ragguard.credentials": 0, "ragguard.arguments": 0, "ragguard.recordcheck": 0,
    "ragguard.runtime": 0, "ragguard.answer_text": 0,
    "ragguard.engines": 1, "ragguard.metrics": 1, "ragguard.world": 1,
    "ragguard.probes": 2,
    "ragguard.scorers": 3,
    "ragguard.capture": 4, "ragguard.guard": 4, "ragguard.sinks": 4,
    "ragguard.store": 4, "ragguard.service": 4,
    "ragguard.client": 5,
    "ragguard.cli": 6, "ragguard.report": 6, "ragguard.validate": 6,
}  # fmt: skip
FILES = sorted((ROOT / "ragguard").rglob("*.py"))


def home(module: str) -> str | None:
    """The part of the package a module belongs to."""
    return ".".join(module.split(".")[:2]) if module.startswith("ragguard.") else None


def imports(path: Path) -> set[str]:
    """Every module of ragguard a file imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "ragguard"}
    return {name for name in found if name.startswith(("ragguard.", "ragguard_"))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    mine = home(module)
    if mine in (None, "ragguard.__init__"):
        return
    assert mine in FLOORS, f"{mine} stands on no floor: say which in FLOORS"
    for name in imports(path):
        assert not name.startswith("ragguard_"), f"{path} imports an integration"
        theirs = home(name)
        if theirs in FLOORS and theirs != mine:
            assert FLOORS[theirs] <= FLOORS[mine], f"{module} (floor {FLOORS[mine]}) imports {name}"


def test_the_walk_sees_imports():
    assert any(imports(path) for path in FILES)
