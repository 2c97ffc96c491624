"""Programs in forks of a Python that has imported their frameworks: each starts at once, and is a process of its own.

Frameworks take 1.5 to 3 seconds to import. The packages of this project are imported by each program itself.
"""

from __future__ import annotations

import ast
import atexit
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

FRAMEWORKS = {"haystack", "langchain", "langchain_classic", "langchain_core", "langgraph", "llama_index"}
ALWAYS = ("httpx", "numpy")


def run_python(
    *words: str, cwd: Path, environment: Mapping[str, str], timeout: int = 120
) -> subprocess.CompletedProcess[str]:
    """Runs `python WORDS…` (`-c CODE`, or `-m MODULE` or a file, with arguments); kills it once its time is over."""
    source = words[1] if words[0] == "-c" else "" if words[0] == "-m" else Path(words[0]).read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        out, err = (str(Path(folder) / name) for name in ("out", "err"))
        order = {"words": words, "cwd": str(cwd), "environment": dict(environment), "out": out, "err": err}
        warm = _warmed(tuple(sorted(_modules(source))))
        assert warm.stdin is not None
        assert warm.stdout is not None
        warm.stdin.write(json.dumps({**order, "timeout": timeout}) + "\n")
        warm.stdin.flush()
        code = int(warm.stdout.readline())
        texts = [Path(name).read_text("utf-8") for name in (out, err)]
    return subprocess.CompletedProcess([sys.executable, *words], code, *texts)


def _modules(source: str) -> set[str]:
    """Returns the modules of frameworks that a program imports."""
    named = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named.add(node.module)
    return {name for name in named if name.partition(".")[0] in FRAMEWORKS}


@cache
def _of_frameworks(frameworks: frozenset[str]) -> subprocess.Popen[str]:
    """Starts a Python for programs of the same frameworks, so that none finds another framework imported."""
    warm = subprocess.Popen(
        [sys.executable, __file__], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ""},
    )  # fmt: skip
    atexit.register(warm.communicate)
    return warm


def _warmed(modules: tuple[str, ...]) -> subprocess.Popen[str]:
    warm = _of_frameworks(frozenset(name.partition(".")[0] for name in modules))
    assert warm.stdin is not None
    warm.stdin.write(json.dumps({"modules": modules}) + "\n")
    return warm


def _next_program() -> dict[str, Any] | None:
    """Imports what is asked for and forks for each program; returns the program in the fork, None at the end."""
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        for name in order.get("modules", ()):
            importlib.import_module(name)
        if "words" in order:
            pid = os.fork()
            if pid == 0:
                return order
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def _become(order: dict[str, Any]) -> None:
    """Makes this process the program."""
    signal.alarm(order["timeout"])
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    written = os.O_WRONLY | os.O_CREAT
    for number, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (order["out"], written), (order["err"], written)]
    ):
        os.dup2(os.open(name, flags), number)
    first, *rest = order["words"]
    named = first in ("-c", "-m")
    sys.path[0] = "" if named else str(Path(first).parent)
    sys.path[1:1] = filter(None, order["environment"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [first, *rest[1:]] if named else [first, *rest]
    if first == "-c":
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec", dont_inherit=True), main.__dict__)
    elif first == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for module in ALWAYS:
        importlib.import_module(module)
    if program := _next_program():
        _become(program)
