"""The lines that attach ragguard to a program, and the line of a file after which they go."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ragguard.cli.project import SourceFile
from ragguard.errors import InvalidInput

ADAPTERS = {
    "LangChain": "ragguard_langchain",
    "LlamaIndex": "ragguard_llamaindex",
    "Haystack": "ragguard_haystack",
}
"""Frameworks whose retrievals are captured by one call."""
SINKS = {
    "Phoenix": ("PhoenixSink", 'PhoenixSink("http://localhost:6006")'),
    "Langfuse": ("OtelSink", 'OtelSink(otlp="https://cloud.langfuse.com/api/public/otel", spans_only=True)'),
}
"""Tracers that get their scores by a sink: the class, and how it is made."""
PLAIN = """
@ragguard.retrieval
def search(query: str) -> list[str]:
    return ["a passage that your search finds"]


question = "a question of your user"
with rg.run(question) as run:
    passages = search(question)
    run.answered("the answer of your model")
"""


@dataclass(frozen=True, slots=True)
class PlacedLines:
    """A file with the lines in it."""

    file: SourceFile
    after: int
    """The line after which they go; 0 for the beginning of the file."""
    text: str


def lines_for(found: Collection[str]) -> list[str]:
    """Returns the lines for the frameworks and tracers that were found; without a framework those of plain code."""
    adapters = [module for name, module in ADAPTERS.items() if name in found]
    sinks = [(name, made) for tracer, (name, made) in SINKS.items() if tracer in found]
    lines = [f"import {module}" for module in sorted(adapters or ["ragguard"])]
    lines.append("from ragguard import RagGuard")
    if sinks:
        lines.append(f"from ragguard.telemetry import {', '.join(sorted(name for name, _ in sinks))}")
    made = f"sinks=[{', '.join(made for _, made in sinks)}]" if sinks else ""
    lines += ["", f"rg = RagGuard({made})"]
    lines += [f"{module}.instrument(rg)" for module in adapters]
    return lines if adapters else [*lines, "", *PLAIN.splitlines()]


def place(file: SourceFile, lines: Sequence[str]) -> PlacedLines:
    """Returns the file with the lines after its leading imports; raises InvalidInput where that is not safe."""
    if name := re.search(r"\b(rg|RagGuard)\b", file.text):
        raise _refused(file, f"a file that does not use the name {name[0]} otherwise")
    leading = list(takewhile(lambda numbered: _leads(*numbered), enumerate(file.tree.body)))
    old = file.text.splitlines(keepends=True)
    if leading:
        after = leading[-1][1].end_lineno or 0
    else:  # a line `#!` and comments about the file stay first
        after = next((at for at, line in enumerate(old) if not line.startswith("#")), len(old))
    end = "\r\n" if old and old[0].endswith("\r\n") else "\n"
    before, later = "".join(old[:after]), "".join(old[after:])
    if before:
        before = before.rstrip("\r\n") + 2 * end
    block = end.join(lines) + end + (end if later.strip() and not later.startswith(end) else "")
    text = before + block + later
    count = len(leading)
    expected = [*file.tree.body[:count], *ast.parse("\n".join(lines)).body, *file.tree.body[count:]]
    try:
        kept = ast.parse(text).body
    except (SyntaxError, ValueError):
        kept = []
    if list(map(ast.dump, kept)) != list(map(ast.dump, expected)):
        raise _refused(file, "a file whose imports end on a line of their own")
    return PlacedLines(file=file, after=after, text=text)


def _refused(file: SourceFile, allowed: str) -> InvalidInput:
    return InvalidInput("--write", str(file.path), f"{allowed}; put the lines in by hand, without --write")


def _leads(number: int, node: ast.stmt) -> bool:
    """Returns whether a statement belongs to the imports at the head of a file: settings of the environment, too."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Try):
        return all(isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body)
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]).startswith("os.environ[")
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).endswith(("load_dotenv", "os.environ.setdefault"))
    return number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
