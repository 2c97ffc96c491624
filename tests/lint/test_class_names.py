"""One thing has one name: no two classes of the package and the integrations share one, even but for an underscore."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = {"GuardedRetriever"}
"""Public names that both integrations have on purpose."""


def test_class_names_are_unique():
    found = defaultdict(list)
    for package in ("ragguard", "integrations"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and node.name not in SHARED:
                    found[node.name.lstrip("_")].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_score_is_a_verb_of_rag_guard_and_of_scorers_alone():
    """What lies between a caller and a scorer has other verbs, so that each step of the way is found by its own."""
    others = []
    for path in sorted((ROOT / "ragguard").rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text("utf-8"))):
            for node in owner.body if isinstance(owner, ast.Module | ast.ClassDef) else []:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "score":
                    arguments = [argument.arg for argument in node.args.args]
                    of_client = getattr(owner, "name", "") == "RagGuard"
                    if not of_client and arguments != ["self", "view", "ask"]:
                        others.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert others == []
