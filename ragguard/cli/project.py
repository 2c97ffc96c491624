"""Reads which frameworks and tracers a project uses, from its dependencies and its imports; nothing is run."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ragguard.errors import InvalidInput

FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "LangChain": ("langchain", "langgraph"),
    "LlamaIndex": ("llama_index",),
    "Haystack": ("haystack",),
    "Phoenix": ("phoenix", "arize_phoenix"),
    "Langfuse": ("langfuse",),
    "Logfire": ("logfire",),
    "OpenInference": ("openinference",),
    "OpenTelemetry": ("opentelemetry",),
}
"""The names that are looked for, and how their packages begin, in an import or in the name of a distribution."""
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
    uses: dict[str, int] = field(default_factory=dict)
    """Framework → the line of its first import."""
    own_line: int | None = None
    """The line that imports ragguard already."""

    @property
    def is_program(self) -> bool:
        """True for a file with `if __name__ == "__main__"`."""
        return any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in self.tree.body)


@dataclass(slots=True)
class Project:
    """The dependencies and the parsed files of a folder."""

    folder: Path
    declared: dict[str, str] = field(default_factory=dict)
    """Framework → the file that declares it as a dependency."""
    files: list[SourceFile] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)
    """Python files that are too long, no UTF-8 or no Python of this version."""

    def found(self) -> dict[str, str]:
        """Returns what the project uses, each with where that is seen, in the order of `FRAMEWORKS`."""
        imported = {
            name: f"{self.name_of(file)}:{line}"
            for file in reversed(self.files)
            for name, line in file.uses.items()
        }
        seen = self.declared | imported
        return {name: seen[name] for name in FRAMEWORKS if name in seen}

    def name_of(self, file: SourceFile) -> str:
        """Returns the path of a file below the folder, or all of its path where it lies elsewhere."""
        path = file.path
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else str(path)


def read_project(folder: Path) -> Project:
    """Reads the dependencies and the imports of a folder; raises InvalidInput where there is no such folder."""
    if not folder.is_dir():
        raise InvalidInput("FOLDER", str(folder), "a folder that is there")
    project = Project(folder)
    for requirement, declared_in in _requirements(folder):
        name = _NAME.match(requirement)
        if name and (framework := _framework_of(name[1])):
            project.declared.setdefault(framework, declared_in)
    for path in islice(_python_files(folder), MOST_FILES):
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
        file = SourceFile(path, text, ast.parse(text))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    for name, line in sorted(_imported(file.tree), key=lambda found: found[1]):
        if name.startswith("ragguard"):
            file.own_line = file.own_line or line
        elif framework := _framework_of(name):
            file.uses.setdefault(framework, line)
    return file


def _framework_of(name: str) -> str | None:
    """Returns the framework of an import or a distribution, such as `langgraph.graph` or `llama-index-core`."""
    head = re.sub(r"[-.]", "_", name.lower()) + "_"
    matching = (
        framework
        for framework, beginnings in FRAMEWORKS.items()
        if any(head.startswith(f"{beginning}_") for beginning in beginnings)
    )
    return next(matching, None)


def _imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def _requirements(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the requirements of a project, each with the file that declares it."""
    for path in sorted(folder.glob("requirements*.txt")):
        yield from ((line, path.name) for line in _text_of(path).splitlines())
    try:
        content = tomllib.loads(_text_of(folder / "pyproject.toml"))
        project, poetry = content.get("project", {}), content.get("tool", {}).get("poetry", {})
        groups = [
            project.get("dependencies", ()), *project.get("optional-dependencies", {}).values(),
            *content.get("dependency-groups", {}).values(), poetry.get("dependencies", ()),
            *(group.get("dependencies", ()) for group in poetry.get("group", {}).values()),
        ]  # fmt: skip
        yield from [(str(requirement), "pyproject.toml") for group in groups for requirement in group]
    except (ValueError, TypeError, AttributeError):  # no TOML, or of another shape than the standard's
        return


def _text_of(path: Path) -> str:
    """Returns the text of a file; "" where there is none in UTF-8."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""


def _python_files(folder: Path) -> Iterator[Path]:
    """Yields the project's Python files, those of a folder before those below it; links are not followed."""
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _PASSED_OVER
            and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(names):
            path = here / name
            if name.endswith(".py") and not name.startswith(("test_", ".")) and not path.is_symlink():
                yield path
