"""`ragguard init`: finds the framework of a project, and prints or writes the lines that attach ragguard to it.

Dependencies and imports are read; nothing of the project is run.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ragguard.cli.doctor import cost_of_a_hop
from ragguard.cli.terminal import say
from ragguard.engines.connect import OPENAI, choose
from ragguard.errors import EngineRejected, InvalidInput, RagguardError, install_line
from ragguard.text.folder import LONGEST_FILE, read_bytes
from ragguard.text.secret_filter import without_secrets


@dataclass(frozen=True, slots=True)
class Attachable:
    """A framework or a tracer, and how ragguard is attached to it."""

    beginnings: tuple[str, ...]
    """How its packages begin, in an import or in the name of a distribution, with "_" for any separator."""
    extra: str = ""
    """The extra of ragguard that it needs."""
    adapter: str = ""
    """The module whose `instrument` captures a framework's retrievals."""
    sink: str = ""
    """How the sink of a tracer is made."""
    remark: str = ""


_ADD_NOTHING = "scores go to the tracer provider that you have configured; add nothing"
KNOWN = {
    "LangChain": Attachable(("langchain_", "langgraph_"), "langchain", "ragguard_langchain"),
    "LlamaIndex": Attachable(("llama_index_",), "llama-index", "ragguard_llamaindex"),
    "Haystack": Attachable(("haystack_",), "haystack", "ragguard_haystack"),
    "Phoenix": Attachable(
        ("phoenix_", "arize_phoenix_"),
        "phoenix",
        sink='PhoenixSink("http://localhost:6006")',
        remark="gets the scores as annotations; give PhoenixSink your server's address",
    ),
    "Langfuse": Attachable(
        ("langfuse_",),
        "otlp",
        sink='OtelSink(otlp="https://cloud.langfuse.com/api/public/otel", spans_only=True)',
        remark="takes the scores as spans, with OTEL_EXPORTER_OTLP_HEADERS set (docs/how-to/telemetry.md)",
    ),
    "Logfire": Attachable(("logfire_",), remark=_ADD_NOTHING),
    "OpenInference": Attachable(
        ("openinference_",), remark="its spans of retrievals are scored, and no second ones made; add nothing"
    ),
    "OpenTelemetry": Attachable(("opentelemetry_",), remark=_ADD_NOTHING),
}
PLAIN = """
@ragguard.retrieval
def search(query: str) -> list[str]:
    return ["a passage that your search finds"]


question = "a question of your user"
with rg.run(question) as run:
    passages = search(question)
    run.answered("the answer of your model")
"""
_PASSED_OVER = frozenset("venv env node_modules site-packages __pycache__ build dist tests test".split())


def run(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path("."),
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The file to add the lines to, if init would take another."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the lines into the file.")] = False,
) -> None:
    """Find the framework of a project, and print the lines to add, where they go, and what to do next.

    It reads dependencies and imports. It runs none of your code, and changes a file only with --write.

    Exit code 0: printed, or written with --write. 2: there is no such folder or file, or no place for the lines.
    """
    if not folder.is_dir():
        raise InvalidInput("FOLDER", str(folder), "a folder that exists")
    found, programs = _declared(folder), list[SourceFile]()
    for path in _python_files(folder):
        if (source := read_file(path)) is None:
            say(f"{os.path.relpath(path, folder)} could not be read as Python")
            continue
        name = os.path.relpath(path, folder)
        if "ragguard" in source.uses:
            say(f"ragguard is there already: {name}:{source.uses['ragguard']}; nothing is to be added")
            return
        found |= {one: f"{name}:{line}" for one, line in source.uses.items()}
        if any(KNOWN[one].adapter for one in source.uses):
            programs.append(source)
    found = {one: found[one] for one in KNOWN if one in found}
    for one, where in found.items():
        say(f"found {one} ({where})")
    if extras := ",".join(KNOWN[one].extra for one in found if KNOWN[one].extra):
        say(f"\ninstall: {install_line(extras)}   (./ragguard is the folder of the clone)")
    if not any(KNOWN[one].adapter for one in found):
        say("found no LangChain, LangGraph, LlamaIndex or Haystack: here are the lines for plain code")
    target = _target(folder, file, programs)
    engine = find_engine(set_later=target is not None and target.sets_environment)
    lines = lines_for(list(found), engine)
    if target is not None:
        say(f"add to {os.path.relpath(target.path, folder)}, after line {target.after}:\n")
    else:
        say("add where your program starts, before its first retrieval:\n")
    say("\n".join(f"    {line}" if line else "" for line in lines) + "\n")
    for one in found:
        if KNOWN[one].remark:
            say(f"{one}: {KNOWN[one].remark}.")
    if write:
        _write(target, lines)
    say(f"\n{engine.remark}")
    say("\nnext:")
    say("  ragguard doctor auto        which model gives the scores, and what it can judge")
    say("  (run your program once)     its runs and scores go to ragguard.db")
    say("  ragguard report             the runs, and what each retrieval did for the answer")


NAMES = ", ".join(OPENAI)


class EngineLine(NamedTuple):
    """The engine that scores, as an argument in a line of Python."""

    argument: str
    comment: str = ""
    """The comment behind the line."""
    remark: str = ""
    """The cost of scoring with it, or how to name one."""


def find_engine(*, set_later: bool) -> EngineLine:
    """Returns the engine that the environment names or that answers on this machine, and asks it what a hop costs.

    Args:
        set_later: True if the program sets its environment itself, where `RagGuard()` finds an engine when it runs.
    """
    try:
        choice = choose()
    except EngineRejected as error:
        if set_later:
            return EngineLine(
                "", f"  # scores if {NAMES} are set, else captures only", f"no scores yet: {error}"
            )
        comment = f"  # captures only; remove engine=None once {NAMES} are set"
        return EngineLine("engine=None", comment, f"no scores yet: {error}")
    # A password in an address stays in the environment, where RagGuard() finds it by itself.
    is_plain = without_secrets(choice.address) == choice.address
    argument = f"engine={json.dumps(choice.address)}" if is_plain else ""
    try:
        cost = asyncio.run(cost_of_a_hop(choice.address))
    except RagguardError as error:
        cost = f"the cost of a hop could not be measured ({error}); `ragguard doctor` says what is wrong"
    return EngineLine(argument, "", f"scores by {without_secrets(choice.address)}: {cost}")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file of the project."""

    path: Path
    text: str
    uses: dict[str, int]
    """The line of the first import of each framework, tracer, and of `ragguard`."""
    sets_environment: bool
    """True if its head speaks of the environment (`load_dotenv()`, `os.environ`)."""
    after: int
    """The line after which the lines go: the last of the imports at the head of the file, or of what stands there about
    the environment (`load_dotenv()`, `os.environ`), which may name an engine."""


def read_file(path: Path) -> SourceFile | None:
    """Returns what init needs to know of a file; None for one that cannot be read as Python."""
    try:
        text = read_bytes(path, LONGEST_FILE).decode("utf-8")
        body = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    uses: dict[str, int] = {}
    for node in (inner for statement in body for inner in ast.walk(statement)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [] if node.level else [node.module or ""]
        for one in filter(None, map(_known, names)):
            uses[one] = min(node.lineno, uses.get(one, node.lineno))
    after = len(list(takewhile(lambda line: line.startswith("#"), text.splitlines())))
    in_head, environment = True, False
    for at, node in enumerate(body):
        in_head &= not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        docstring = at == 0 and isinstance(node, ast.Expr)
        sets = isinstance(node, ast.Expr | ast.Assign) and re.search("load_dotenv|environ", ast.dump(node))
        environment |= bool(in_head and sets)
        wanted = docstring or sets or isinstance(node, ast.Import | ast.ImportFrom)
        if (in_head and wanted) or (
            at and node.lineno <= after
        ):  # or it begins on the line of the one before
            after = node.end_lineno or after
    return SourceFile(path, text, uses, sets_environment=environment, after=after)


def _known(name: str) -> str | None:
    """Returns what an import or a distribution belongs to, such as `langgraph.graph` or `llama-index-core`."""
    head = re.sub(r"[-.]", "_", name.lower()) + "_"
    if head.startswith("ragguard_"):
        return "ragguard"
    return next((one for one, known in KNOWN.items() if head.startswith(known.beginnings)), None)


def _declared(folder: Path) -> dict[str, str]:
    """Returns what the requirements of a project name, each with the file that does so."""
    wanted: list[tuple[str, str]] = []
    for path in sorted(folder.glob("requirements*.txt")):
        lines = _project_file(path).splitlines()
        wanted += ((line, path.name) for line in lines)
    pyproject = folder / "pyproject.toml"
    if pyproject.exists():
        try:
            content = tomllib.loads(_project_file(pyproject))
        except ValueError as error:
            raise InvalidInput("pyproject.toml", str(pyproject), f"a TOML file; {error}") from error
        wanted += ((name, pyproject.name) for name in _dependencies(content))
    known = ((_known(re.split(r"[^\w.-]", one.strip())[0]), where) for one, where in wanted)
    return {one: where for one, where in known if one in KNOWN}


def _project_file(path: Path) -> str:
    try:
        return read_bytes(path, LONGEST_FILE).decode("utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput("FOLDER", str(path), f"a file that can be read ({error})") from error


def _dependencies(node: object, *, inside: bool = False) -> Iterator[str]:
    """Yields all requirements below the tables whose names end in `dependencies` or `dependency-groups`."""
    if isinstance(node, dict):
        for name, value in node.items():
            if inside:
                yield name
            yield from _dependencies(
                value, inside=inside or name.endswith(("dependencies", "dependency-groups"))
            )
    elif isinstance(node, list):
        for value in node:
            yield from _dependencies(value, inside=inside)
    elif inside:
        yield str(node)


def _python_files(folder: Path) -> Iterator[Path]:
    """Yields the project's Python files but for tests, hidden folders and environments; links are not followed."""
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
            if name.endswith(".py") and not name.startswith(("test_", ".")):
                yield here / name


def lines_for(found: Sequence[str], engine: EngineLine) -> list[str]:
    """Returns the lines for the frameworks and tracers that were found; without a framework those of plain code."""
    adapters = [KNOWN[one].adapter for one in found if KNOWN[one].adapter]
    sinks = [KNOWN[one].sink for one in found if KNOWN[one].sink]
    lines = [f"import {module}" for module in sorted(adapters or ["ragguard"])]
    lines.append("from ragguard import RagGuard")
    if sinks:
        names = sorted(one.partition("(")[0] for one in sinks)
        lines.append(f"from ragguard.telemetry import {', '.join(names)}")
    arguments = [engine.argument, f"sinks=[{', '.join(sinks)}]" if sinks else ""]
    lines += ["", f"rg = RagGuard({', '.join(filter(None, arguments))}){engine.comment}"]
    lines += [f"{module}.instrument(rg)" for module in adapters]
    return lines if adapters else [*lines, "", *PLAIN.splitlines()]


def _target(folder: Path, file: Path | None, using: Sequence[SourceFile]) -> SourceFile | None:
    """Returns the file for the lines: the one that is named, else the only program, else the only file, that imports a
    framework; None where there is none."""
    if file is not None:
        named = read_file(file if file.exists() else folder / file)
        if named is None:
            raise InvalidInput("--file", str(file), "a Python file that can be read")
        return named
    programs = [one for one in using if "__main__" in one.text] or using
    if len(programs) > 1:
        names = ", ".join(os.path.relpath(one.path, folder) for one in programs[:4])
        say(f"these could start the program, --file says which: {names}{', …' if len(programs) > 4 else ''}")
        return None
    return programs[0] if programs else None


def _write(target: SourceFile | None, lines: Sequence[str]) -> None:
    """Writes the lines into the file; raises InvalidInput where they cannot be placed safely."""
    by_hand = "put the lines in by hand, without --write"
    if target is None:
        raise InvalidInput(
            "--write", "no one file", f"a file that imports a framework, by --file; or {by_hand}"
        )
    if taken := re.search(r"\b(rg|RagGuard)\b", target.text):
        allowed = f"a file that does not use the name {taken[0]} for something else; {by_hand}"
        raise InvalidInput("--write", str(target.path), allowed)
    old = target.text.splitlines(keepends=True)
    end = "\r\n" if old and old[0].endswith("\r\n") else "\n"
    block = [f"{line}{end}" for line in ["", *lines, ""]]
    target.path.write_bytes("".join([*old[: target.after], *block, *old[target.after :]]).encode())
    say(f"written to {target.path}")
