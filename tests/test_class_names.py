"""One thing has one name: no class of the package or of an integration is called as another one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARED = {"GuardedRetriever"}
"""Public names that both integrations have on purpose."""


def test_class_names_are_unique():
    found = defaultdict(list)
    for package in ("ragguard", "integrations"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name not in SHARED:
                    found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
