"""A record is built from at most four positional arguments; those after them are named, for the reader."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "ragguard").rglob("*.py"), *(ROOT / "integrations").rglob("*.py")])
MOST = 4


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    named = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return any(name.startswith(("dataclass", "dataclasses.dataclass", "NamedTuple")) for name in named)


def records(trees: dict[Path, ast.Module]) -> set[str]:
    return {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and is_record(node)
    }


def called(function: ast.expr) -> str:
    """The last name of what is called: `Run` of `Run(...)` and of `records.Run(...)`."""
    return getattr(function, "attr", getattr(function, "id", ""))


def too_many(tree: ast.Module, names: set[str]) -> list[tuple[int, str]]:
    """Calls of records with more than four positional arguments."""
    return [
        (node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (name := called(node.func)) in names and len(node.args) > MOST
    ]


def test_records_are_built_by_keyword():
    trees = {path: ast.parse(path.read_text()) for path in FILES}
    names = records(trees)
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in FILES
        for line, name in too_many(trees[path], names)
    ]
    assert not found, "\n".join(found)


def test_the_walk_finds_a_record():
    tree = ast.parse(
        "@dataclass(frozen=True)\nclass A: ...\nclass B(NamedTuple): ...\nA(1, 2, 3, 4, 5)\nx.B(1, 2, 3, 4, 5)\nB(1)\n"
    )
    assert records({Path(): tree}) == {"A", "B"}
    assert too_many(tree, {"A", "B"}) == [(4, "A"), (5, "B")]
