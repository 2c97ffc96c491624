"""`ragguard init`: finds the framework of a project, and prints or writes the lines that attach ragguard to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from ragguard.cli.placement import ADAPTERS, PlacedLines, lines_for, place
from ragguard.cli.project import MOST_FILES, Project, SourceFile, read_file, read_project
from ragguard.cli.terminal import say
from ragguard.errors import InvalidInput

EXTRAS = {"LangChain": "langchain", "LlamaIndex": "llama-index", "Haystack": "haystack", "Phoenix": "phoenix",
          "Langfuse": "otlp"}  # fmt: skip
"""The extra of ragguard that each framework or tracer needs."""
PAGES = {
    "LangChain": "how-to/langchain.md",
    "LlamaIndex": "how-to/llama-index.md",
    "Haystack": "how-to/haystack.md",
}
REMARKS = {
    "Phoenix": "Phoenix gets the scores as annotations; give PhoenixSink your server's address.",
    "Langfuse": "Langfuse takes the scores as spans, with OTEL_EXPORTER_OTLP_HEADERS set (docs/how-to/telemetry.md).",
    "Logfire": "Logfire: scores go to the tracer provider that you have configured; add nothing.",
    "OpenInference": "OpenInference: its spans of retrievals are scored, and no second ones made; add nothing.",
    "OpenTelemetry": "OpenTelemetry: scores go to the tracer provider that you have configured; add nothing.",
}


def run(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path("."),
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The file that the lines are for, where init would take another."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the lines into the file, after a diff.")
    ] = False,
) -> None:
    """Find the framework of a project, and print the lines to add, where, and what to look at next.

    Dependencies and imports are read; nothing of the project is run, and without --write no file is changed.
    """
    project = read_project(folder)
    named = None if file is None else _named(project, file)
    found = project.found()
    for name, where in found.items():
        say(f"found {name} ({where})")
    frameworks = [name for name in ADAPTERS if name in found]
    if not frameworks:
        say("found no LangChain, LangGraph, LlamaIndex or Haystack: these are the lines of plain code")
    if len(project.files) + len(project.unread) == MOST_FILES:
        say(f"only the first {MOST_FILES:,} Python files were read")
    if project.unread:
        say(f"{len(project.unread):,} could not be read as Python, such as {project.unread[0]}")
    if known := next((source for source in project.files if source.own_line), None):
        say(f"ragguard is there already: {project.name_of(known)}:{known.own_line}; nothing is to be added")
        _say_next(found)
        return
    lines = lines_for(found)
    if extras := ",".join(EXTRAS[name] for name in found if name in EXTRAS):
        say(f"\ninstall: pip install 'ragguard[{extras}]'")
    change = None
    target = named or _target(project, frameworks, write=write)
    if target and frameworks:
        try:
            change = place(target, lines)
        except InvalidInput:
            if write or named:
                raise
    if change:
        where = f"after line {change.after}" if change.after else "at its beginning"
        say(f"add to {project.name_of(change.file)}, {where}:\n")
    elif frameworks:
        say("add where your program starts, before its first retrieval:\n")
    else:
        say(f"add around your own search{f' in {project.name_of(named)}' if named else ''}:\n")
    say("\n".join(f"    {line}" if line else "" for line in lines) + "\n")
    for name in found:
        if name in REMARKS:
            say(REMARKS[name])
    if write:
        if not change:
            allowed = "a project whose code imports a framework; add the lines by hand"
            raise InvalidInput("--write", str(folder), allowed)
        _write(project.name_of(change.file), change)
    _say_next(found)


def _named(project: Project, file: Path) -> SourceFile:
    """Returns the file that --file names; raises InvalidInput where it cannot be read as Python."""
    path = file if file.exists() else project.folder / file
    given = None if path.is_symlink() else read_file(path)
    if given is None:
        raise InvalidInput("--file", str(file), "a Python file that can be read, and is no link")
    return given


def _target(project: Project, frameworks: Collection[str], *, write: bool) -> SourceFile | None:
    """Returns the file for the lines: the only program, else the only file, that imports a framework; None where there
    is none. To write, there must be no doubt."""
    using = [source for source in project.files if source.uses.keys() & set(frameworks)]
    programs = [source for source in using if source.is_program] or using
    if len(programs) > 1:
        names = ", ".join(map(project.name_of, programs[:4])) + (", …" if len(programs) > 4 else "")
        if write:
            allowed = f"one file that starts the program ({names}): --file says which"
            raise InvalidInput("--write", str(project.folder), allowed)
        say(f"these could start the program, --file says which: {names}")
    return programs[0] if programs else None


def _write(name: str, change: PlacedLines) -> None:
    """Shows the difference, and replaces the file as a whole."""
    path = change.file.path
    old, new = (text.splitlines() for text in (change.file.text, change.text))
    say("\n".join(unified_diff(old, new, name, name, lineterm="")))
    draft = path.with_name(f".{path.name}.ragguard")
    try:
        draft.write_bytes(change.text.encode())
        shutil.copymode(path, draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    say(f"\nwritten to {name}")


def _say_next(found: Collection[str]) -> None:
    say("\nnext:")
    say("  ragguard doctor auto        which model gives the scores, and what it can judge")
    say("  (run your program once)     its runs and scores go to ragguard.db")
    say("  ragguard report             the runs, and what each retrieval did for the answer")
    pages = [page for name, page in PAGES.items() if name in found] or ["how-to/capture.md"]
    say(f"  docs/{', docs/'.join(pages)}")
