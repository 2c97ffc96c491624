"""An import goes strictly down or stays in its package; files form no circle; private names stay in their module."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.floors import FLOORS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "ragguard").rglob("*.py"))
INTEGRATIONS = sorted((ROOT / "integrations").rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def home(module: str) -> str | None:
    """The part of the package a module belongs to."""
    return ".".join(module.split(".")[:2]) if module.startswith("ragguard.") else None


@cache
def imports(path: Path) -> set[str]:
    """Every module of ragguard a file imports: at its top, inside a function, or for its types alone."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path} imports relatively"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & MODULES.keys()) or {node.module}
    return {name for name in found if name.startswith(("ragguard.", "ragguard_"))}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_strictly_down(module):
    mine = home(module)
    if mine is None:
        return
    assert mine in FLOORS, f"{mine} stands on no floor: say which in FLOORS"
    for name in imports(MODULES[module]):
        assert not name.startswith("ragguard_"), f"{module} imports an integration"
        theirs = home(name)
        if theirs in FLOORS and theirs != mine:
            on_the_ground = FLOORS[theirs] == FLOORS[mine] == 0 or mine == "ragguard.__main__"
            assert on_the_ground or FLOORS[theirs] < FLOORS[mine], (
                f"{module} (floor {FLOORS[mine]}) imports {name}"
            )


def test_the_architecture_names_the_imports_between_packages_of_one_floor():
    page = " ".join((ROOT / "ARCHITECTURE.md").read_text().split())
    (listed,) = re.findall(r"On floor 0 the packages use each other \((.*?)\)", page)
    named = {
        (mine, theirs)
        for mine, _, targets in (row.partition(" → ") for row in listed.split("; "))
        for theirs in targets.split(", ")
    }
    assert named == {
        (mine.removeprefix("ragguard."), theirs.removeprefix("ragguard."))
        for module, path in MODULES.items()
        for mine, theirs in ((home(module), home(name)) for name in imports(path))
        if FLOORS.get(mine) == FLOORS.get(theirs) == 0 and mine != theirs
    }


@pytest.mark.parametrize("package", ["ragguard", "integrations"])
def test_files_form_no_circle(package):
    """Not even of types, nor through the `__init__` of a package, which imports what the package exports."""
    graph = {
        str(path.relative_to(ROOT)): {
            str(there.relative_to(ROOT))
            for name in imports(path)
            if (there := file_of(name)) not in (None, path)
        }
        for path in (FILES if package == "ragguard" else INTEGRATIONS)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def file_of(module: str) -> Path | None:
    """The file of a module or of a package; None for what is neither."""
    if module.startswith("ragguard_"):
        path = (ROOT / "integrations").joinpath(*module.split("."))
        return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)
    return MODULES.get(module)


FOREIGN = {
    "_Hash",
    "_exit",
    "_get_running_loop",
    "_getframe",
    "_register_atexit",
    "_replace",
}
"""Names of the standard library and of frameworks that nothing public replaces."""


@pytest.mark.parametrize("path", FILES + INTEGRATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_names_stay_in_their_module(path):
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ragguard"):
            private = [alias.name for alias in node.names if is_private(alias.name)]
            assert not private, f"{path.name}:{node.lineno} imports {private} from {node.module}"
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            known = node.attr in own or node.attr in FOREIGN
            assert of_self or known, f"{path.name}:{node.lineno} reads {node.attr} of another module's object"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(tree: ast.AST) -> set[str]:
    """The private names that a file defines: functions, classes, fields, attributes of `self`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # a slot
    return found


def test_the_walk_sees_imports():
    assert any(imports(path) for path in FILES)
    assert "ragguard.records" in imports(MODULES["ragguard.capture.events"])
