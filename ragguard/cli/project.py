"""Reads which frameworks and tracers a project uses, from its dependencies and its imports; nothing is run."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ragguard.errors import InvalidInput

FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "LangChain": ("langchain", "langgraph"),
    "LlamaIndex": ("llama_index",),
    "Haystack": ("haystack", "haystack_ai", "haystack_integrations"),
    "Phoenix": ("phoenix", "arize_phoenix"),
    "Langfuse": ("langfuse",),
    "Logfire": ("logfire",),
    "OpenInference": ("openinference",),
    "OpenTelemetry": ("opentelemetry",),
}
"""The names that are looked for, and how their packages begin, in an import or in the name of a distribution."""
OWN = "ragguard"
MOST_FILES = 5_000
LONGEST_FILE = 1_000_000
_PASSED_OVER = frozenset("venv env node_modules site-packages __pycache__ build dist tests test".split())
_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*)")


@dataclass(slots=True)
class SourceFile:
    """A Python file of the project, parsed."""

    path: Path
    text: str
    tree: ast.Module
    uses: dict[str, int]
    """Framework → the line of its first import."""
    own_line: int | None
    """The line that imports ragguard already."""
    is_program: bool
    """True for a file with `if __name__ == "__main__"`."""


@dataclass(slots=True)
class Project:
    """The dependencies and the parsed files of a folder."""

    folder: Path
    declared: dict[str, str] = field(default_factory=dict)
    """Framework → the file that declares it as a dependency."""
    files: list[SourceFile] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)
    """Python files that are too long, no UTF-8 or no Python of this version."""
    cut: bool = False
    """True where the folder has more Python files than are read."""

    def found(self) -> dict[str, str]:
        """Returns what the project uses, each with where that is seen, in the order of `FRAMEWORKS`."""
        seen = {}
        for name in FRAMEWORKS:
            file = next((one for one in self.files if name in one.uses), None)
            if file:
                seen[name] = f"{file.path.relative_to(self.folder).as_posix()}:{file.uses[name]}"
            elif name in self.declared:
                seen[name] = self.declared[name]
        return seen


def read_project(folder: Path) -> Project:
    """Reads the dependencies and the imports of a folder; raises InvalidInput where there is no such folder."""
    if not folder.is_dir():
        raise InvalidInput("FOLDER", str(folder), "a folder that is there")
    project = Project(folder)
    for name, declared_in in _declared(folder):
        if framework := framework_of(name):
            project.declared.setdefault(framework, declared_in)
    for number, path in enumerate(_python_files(folder)):
        if number == MOST_FILES:
            project.cut = True
            break
        if source := read_file(path):
            project.files.append(source)
        else:
            project.unread.append(path)
    return project


def read_file(path: Path) -> SourceFile | None:
    """Returns a parsed file; None for one that cannot be read as Python."""
    try:
        if path.stat().st_size > LONGEST_FILE:
            return None
        text = path.read_bytes().decode("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    uses: dict[str, int] = {}
    own = None
    for name, line in sorted(_imported(tree), key=lambda one: one[1]):
        if name.partition(".")[0].startswith(OWN):
            own = own or line
        elif framework := framework_of(name):
            uses.setdefault(framework, line)
    program = any(isinstance(one, ast.If) and "__main__" in ast.dump(one.test) for one in tree.body)
    return SourceFile(path=path, text=text, tree=tree, uses=uses, own_line=own, is_program=program)


def framework_of(name: str) -> str | None:
    """Returns the framework of an import or a distribution, such as `langgraph.graph` or `llama-index-core`."""
    head = re.sub(r"[-.]", "_", name.lower())
    for framework, beginnings in FRAMEWORKS.items():
        if any(head == one or head.startswith(f"{one}_") for one in beginnings):
            return framework
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def _declared(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the names of the dependencies, each with the file that declares it."""
    for path in sorted(folder.glob("requirements*.txt")):
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        yield from ((match[1], path.name) for line in lines if (match := _NAME.match(line)))
    try:
        content = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):  # no such file, or none that is TOML in UTF-8
        return
    tables = [
        content.get("project"), content.get("dependency-groups"), (content.get("tool") or {}).get("poetry"),
    ]  # fmt: skip
    for table in tables:
        for name in _names(table):
            yield name, "pyproject.toml"


def _names(value: object, *, listed: bool = False) -> Iterator[str]:
    """Yields the names of requirements in lists, and those of poetry's tables of dependencies."""
    if isinstance(value, str) and listed and (match := _NAME.match(value)):
        yield match[1]
    elif isinstance(value, list):
        for one in value:
            yield from _names(one, listed=True)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key == "dependencies" and isinstance(one, dict):
                yield from map(str, one)
            elif key not in ("name", "description", "keywords", "classifiers", "authors", "packages"):
                yield from _names(one)


def _python_files(folder: Path) -> Iterator[Path]:
    """Yields the project's Python files, those of a folder before those below it; links are not followed."""
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            one
            for one in folders
            if not one.startswith(".")
            and one not in _PASSED_OVER
            and not (here / one / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if name.endswith(".py") and not name.startswith(("test_", ".")) and not path.is_symlink():
                yield path
