"""Chat templates from foreign files, rendered in a separate process that ends if a template takes too much memory or
time: no limit inside an interpreter holds for every filter, method and nested list that a template may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

from ragguard.runtime.per_process import PerProcess

_BYTES, _SECONDS, _CHARACTERS = 2**29, 10, 2**22
"""The most memory of the process, seconds of one conversation, and characters beside those of the conversation. Memory
is bounded where the system can do it: on Linux."""
_PROGRAM = """
import faulthandler, json, sys
sys.path[:], template, most_bytes, seconds, most = json.loads(sys.stdin.readline())
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
except (ImportError, OSError, ValueError):
    pass
from jinja2.sandbox import ImmutableSandboxedEnvironment
sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
for line in sys.stdin:
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        pieces, room = [], most + len(line)
        for piece in sandbox.from_string(template).generate(**json.loads(line)):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise ValueError("it makes more than a prompt of it")
        reply = "".join(pieces), ""
    except Exception as error:
        reply = "", f"{type(error).__name__}: {error}"[:500]
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(reply), flush=True)
"""


class ChatTemplate:
    """A template that any thread renders. Needs the package jinja2.

    Args:
        source: The template, in Jinja's language.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._renderer = PerProcess(lambda: _Renderer(source))

    def render(self, **values: Any) -> str:
        """Returns the text; raises jinja2's TemplateError if the template refuses the values, is wrong, or takes more
        memory or time than a chat template needs."""
        from jinja2 import TemplateRuntimeError

        reply = self._renderer.get().ask(json.dumps(values))
        if reply is None:
            self._renderer.forget()
            raise TemplateRuntimeError(
                f"it took more than {_BYTES >> 20} MiB of memory or {_SECONDS} s, and was ended"
            )
        text, error = json.loads(reply)
        if error:
            raise TemplateRuntimeError(error)
        return str(text)


class _Renderer:
    """The process of one template."""

    def __init__(self, source: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="ascii",
            start_new_session=True,  # else Ctrl-C, or a notebook's interrupt, would end it as well
        )  # fmt: skip
        weakref.finalize(self, _end, self._process, os.getpid())
        self._settings = json.dumps((sys.path, source, _BYTES, _SECONDS, _CHARACTERS))

    def ask(self, line: str) -> str | None:
        """Returns the reply to a line; None if the process has ended."""
        to, replies = self._process.stdin, self._process.stdout
        assert to is not None
        assert replies is not None
        with self._lock:
            try:
                to.write("".join(f"{text}\n" for text in (self._settings, line) if text))
                to.flush()
                self._settings = ""
                return replies.readline() or None
            except OSError:
                return None


def _end(process: subprocess.Popen[str], owner: int) -> None:
    """Ends the process of a template, unless this is a fork of the process that started it."""
    if owner == os.getpid():
        process.kill()
        process.communicate()
