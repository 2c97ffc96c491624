"""A model of this process behind a local HTTP server with one of three faces.

`labels` and `samples` speak chat completions, with and without log-probabilities; `decisions` speaks System One, and
answers each typed question from the model's own label probabilities. Every request and every token is counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import numpy as np

from ragguard.engines.base import Message, Prompt
from ragguard.engines.layers import Coalesce
from ragguard.engines.local.local_engine import LocalEngine
from ragguard.engines.prompts import PromptSet, Task, load_prompts
from ragguard.engines.token_model import ProfiledModel
from ragguard.errors import UnfitText
from ragguard.metrics.arrays import Floats

Face = Literal["labels", "decisions", "samples"]
LISTED = ("A", "B", "0", "1", "2", "3", "4", "5")
"""The tokens whose log-probabilities are shown."""
_TASKS: Mapping[object, Task] = {("yes", "no"): "relevance", 5: "grade", 6: "answerability"}
_QUERY = re.compile(r"<(?:query|question)>\n(.*?)\n</", re.DOTALL)
_DOCUMENT = re.compile(r"<document 1>\n(.*)\n</document>", re.DOTALL)


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024
    """How many connections wait to be taken; of more than the five that are the default, some would be broken off, and
    their requests asked, and counted, twice."""


class JudgeServer:
    """The model of an engine, served on a free port of this machine from the running event loop.

    Args:
        engine: The engine whose model answers. It has no layers, so that every request is computed.
        face: What the server speaks.
        prompts: The prompt set whose words the model knows; a question to nano is put in nano's own.
    """

    def __init__(self, engine: LocalEngine, face: Face, prompts: str) -> None:
        self._engine, self._face = Coalesce(engine), face
        self._bare, self._words = engine, load_prompts("nano") if prompts == "nano" else None
        self._loop = asyncio.get_running_loop()
        self.requests = self.sent = self.written = 0
        self.read: list[list[int]] = []
        """The tokens of each prompt that was read."""
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def forget(self) -> None:
        """Sets the counts to zero."""
        self.requests, self.sent, self.written, self.read = 0, 0, 0, []

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        """Returns the status and the reply to a request, from another thread than the loop's."""
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "judge"}]}
        speaks = "/v1/systemone" if self._face == "decisions" else "/v1/chat/completions"
        if path != speaks:
            return 404, {"detail": "Not Found"}
        if "logprobs" in body and self._face == "samples":
            return 400, {"error": {"message": "logprobs are not supported"}}
        self.requests += 1
        work = self._decided(body) if self._face == "decisions" else self._completed(body)
        return 200, asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _completed(self, body: Mapping[str, Any]) -> Any:
        prompt = Prompt(tuple(Message(one["role"], one["content"]) for one in body["messages"]))
        sent = await self._count([prompt])
        top, finish = None, "stop"
        if body.get("top_logprobs"):
            p = await self._probabilities(prompt, LISTED)
            pairs = sorted(zip(LISTED, p, strict=True), key=lambda pair: -pair[1])
            top = [{"token": label, "logprob": math.log(max(value, 1e-300))} for label, value in pairs]
        if top and body["max_tokens"] == 1:
            texts, written, finish = [str(top[0]["token"])], 1, "length"
        else:
            texts, written = await self._drawn(prompt, body)
        self.written += written
        shown = {"logprobs": {"content": [{"token": "", "logprob": 0.0, "top_logprobs": top}]}} if top else {}
        choices = [
            {"message": {"role": "assistant", "content": text}, "finish_reason": finish, **shown}
            for text in texts
        ]
        usage = {"prompt_tokens": sent, "completion_tokens": written}
        return {"model": "judge", "choices": choices, "usage": usage}

    async def _decided(self, body: Mapping[str, Any]) -> Any:
        asked = {name: self._written(body["state"], one) for name, one in body["questions"].items()}
        sent = await self._count([prompt for prompt, _ in asked.values()])
        found = await asyncio.gather(*(self._probabilities(*one) for one in asked.values()))
        answers, diagnostics = {}, {}
        for (name, one), p in zip(body["questions"].items(), found, strict=True):
            mass = float(p.sum())
            keys = list(one["criteria"]) if one["type"] == "choice" else map(str, range(len(p)))
            shares = dict(zip(keys, (p / mass).tolist(), strict=True))
            answers[name] = {"type": one["type"], "probabilities": shares}
            diagnostics[name] = {"label_mass": mass}
        usage = {"input_tokens": sent, "output_tokens": 0}
        return {"answers": answers, "diagnostics": diagnostics, "usage": usage}

    async def _probabilities(self, prompt: Prompt, labels: Sequence[str]) -> Floats:
        """Returns the probability of each label; all are equal where nano does not know the words, as in a client's
        trial question."""
        try:
            return np.asarray((await self._engine.label_probs([prompt], labels)).p[0])
        except UnfitText:
            return np.full(len(labels), 1 / len(labels))

    async def _drawn(self, prompt: Prompt, body: Mapping[str, Any]) -> tuple[list[str], int]:
        """Returns answers without a seed, which many servers do not keep, and how many tokens they have."""
        n = body.get("n", 1)
        try:
            drawn = await self._engine.sample([prompt], n, body["max_tokens"], body.get("temperature", 1.0))
        except UnfitText:
            return ["A"] * n, n
        return [one.text for one in drawn[0]], drawn.usage.output_tokens

    def _written(self, state: str, one: Mapping[str, Any]) -> tuple[Prompt, tuple[str, ...]]:
        """Returns the prompt of a typed question and the labels whose probabilities answer it."""
        choice, criteria = one["type"] == "choice", one["criteria"]
        if self._words is not None and (own := _in_own_words(self._words, state, one)):
            return own
        marks = "ABCDEFGHIJ"[: len(criteria)] if choice else "0123456789"[: len(criteria)]
        meanings = [f"{name} - {text}" for name, text in criteria.items()] if choice else criteria
        lines = [f"{mark}: {meaning}" for mark, meaning in zip(marks, meanings, strict=True)]
        what = "letter of one option" if choice else "number of one level"
        asked = "\n".join([f"Question: {one['instructions']}", *lines, f"Answer with the {what} only."])
        return Prompt((Message("user", f"{state}\n\n{asked}"),)), tuple(marks)

    async def _count(self, prompts: Sequence[Prompt]) -> int:
        """Notes what is read for a request; returns its tokens, what its prompts begin with together counted once."""
        found = await self._bare.model()
        assert isinstance(found, ProfiledModel)
        try:
            rows = await found.model.rows(prompts)
        except UnfitText:
            return 0
        self.read += rows
        self.sent += (tokens := distinct(rows))
        return tokens


def distinct(rows: Sequence[Sequence[int]]) -> int:
    """Returns how many tokens are read of rows of tokens where equal beginnings are read once."""
    total, before = 0, list[int]()
    for row in sorted(map(list, rows)):
        pairs = zip(row, before, strict=False)
        shared = next(
            (at for at, (one, other) in enumerate(pairs) if one != other), min(len(row), len(before))
        )
        total, before = total + len(row) - shared, row
    return total


def _in_own_words(
    words: PromptSet, state: str, one: Mapping[str, Any]
) -> tuple[Prompt, tuple[str, ...]] | None:
    """Returns a question of the prompt set `decisions` in the words of another one; None for any other question."""
    criteria, query, document = one["criteria"], _QUERY.search(one["instructions"]), _DOCUMENT.search(state)
    task = _TASKS.get(tuple(criteria) if one["type"] == "choice" else len(criteria))
    if query is None or document is None or task is None:
        return None
    names = {"question" if task == "answerability" else "query": query[1]}
    return words.render(task, [document[1]], **names), words.labels(task)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: JudgeServer

    def do_GET(self) -> None:
        self._send(*self.owner.reply(self.path, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.owner.reply(self.path, body))

    def _send(self, status: int, reply: Any) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing of each request."""
