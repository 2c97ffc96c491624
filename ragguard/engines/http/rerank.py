"""`rerank:URL`: a reranker as judge of relevance, by the `/rerank` protocol: a query and its passages go out in one
request, and each passage comes back with a score.

Two forms are known, which differ in names: that of Cohere, Jina, Voyage, vLLM, Infinity and llama.cpp, with
`documents`, and that of TEI, with `texts`. The server's form and path are found out by one short request each.

A score is no probability: servers give logits, or squeeze them in ways of their own. So the answer to a label question
is the score's logistic, which keeps the order alone, and the examination's cases make probabilities of it
(`scorers/exam/record.py`). A reranker reads nothing, writes nothing and cannot abstain.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ragguard.engines.base import EngineInfo
from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.replies import optional, unexpected, usage_of
from ragguard.engines.labels import LabelRequest
from ragguard.engines.requests import Reply, Request
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage
from ragguard.runtime.limiter import in_parallel

KIND = "rerank"
_AT_ONCE = 4
_LARGEST = 700.0
"""The largest size of a score whose logistic is computed."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which a server takes a query with passages, and gives their scores."""

    path: str
    root: bool
    """True for a path at the server's root, and not under its base."""
    passages: str
    score: str


FORMS = (
    Form("/rerank", False, "documents", "relevance_score"),
    Form("/rerank", True, "documents", "relevance_score"),
    Form("/rerank", True, "texts", "score"),
)
_NOT_THIS_FORM = frozenset({400, 404, 405, 415, 422, 424})


class RerankEngine(ModelEngine):
    """A reranker behind a URL, as a judge of relevance.

    Args:
        url: The server's address, such as `http://host:8000/v1`, optionally with `#MODEL`.
        model: The model to ask for. None: that of the address, or the server's only one.
        api_key: The key that the server wants. None: RAGGUARD_API_KEY or OPENAI_API_KEY from the environment.
        timeout_s: How many seconds one HTTP request may take.
        headers: More headers of each request.
    """

    only_judges = True
    only_ranks = True

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._client = HttpClient(url, api_key, timeout_s, headers)
        self._model = model or self._client.address.model or ""

    def __repr__(self) -> str:
        return f"RerankEngine({self._client.address.base!r}, model={self._model!r})"

    async def look(self) -> Reranker:
        """Finds out in which form the server takes a query with passages."""
        refusals = []
        for form in FORMS:
            reranker = Reranker(self._client, self._model, form)
            try:
                await reranker.scores("Who runs it?", ["Ada Berg runs it.", "It is red."], None)
                return reranker
            except EngineRejected as error:
                if error.status not in _NOT_THIS_FORM:
                    raise
                refusals.append(str(error))
        raise EngineRejected(
            f"{self._client.address.base} takes no query with passages: {'; '.join(dict.fromkeys(refusals))}. Name the "
            "address of a reranker whose path ends in /rerank (vLLM, TEI, Infinity, llama.cpp, Cohere, Jina, Voyage)"
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


@dataclass(frozen=True, slots=True)
class Reranker:
    """A `FoundModel`: a reranker whose form is known."""

    client: HttpClient
    model: str
    form: Form

    @property
    def info(self) -> EngineInfo:
        """The description of the reranker."""
        where = self.client.address.base
        server = hashlib.sha256(where.encode()).hexdigest()[:12]
        return EngineInfo(
            model=self.model or "reranker",
            kind=KIND,
            fingerprint=f"rerank/{self.model}/{server}",
            prompts="rerank",
            capabilities=frozenset({"batch"}),
            location=where,
            notes=(
                "a reranker's scores rank, and are no probabilities before `ragguard doctor ADDRESS --exam`, whose "
                "cases calibrate them",
            ),
        )

    async def answer(self, request: Request) -> Reply:
        """Answers label questions about the relevance of passages, those for one query by one request."""
        began = time.monotonic()
        if not isinstance(request, LabelRequest) or len(request.labels) != 2:
            raise self._refusal()
        by_query: dict[str, list[int]] = {}
        for row, prompt in enumerate(request.prompts):
            if [message.role for message in prompt.messages] != ["system", "user"]:
                raise self._refusal()
            by_query.setdefault(prompt.messages[0].content, []).append(row)
        calls = [
            partial(
                self.scores,
                query,
                [request.prompts[row].messages[1].content for row in rows],
                request.deadline,
            )
            for query, rows in by_query.items()
        ]
        p, usage = [0.0] * len(request.prompts), Usage()
        for rows, (scores, cost) in zip(by_query.values(), await in_parallel(calls, _AT_ONCE), strict=True):
            usage += cost
            for row, score in zip(rows, scores, strict=True):
                p[row] = 1 / (1 + math.exp(-max(-_LARGEST, min(_LARGEST, score))))
        usage = replace(usage, prompts=len(p), seconds=time.monotonic() - began)
        return Reply([((one, 1.0 - one), True, "first_token", None, None, 0) for one in p], usage)

    async def scores(
        self, query: str, passages: Sequence[str], deadline: float | None
    ) -> tuple[list[float], Usage]:
        """Returns the score of each passage, and the usage."""
        form = self.form
        body: dict[str, Any] = {"query": query, form.passages: list(passages)}
        if self.model:
            body["model"] = self.model
        answer = await self.client.ask(form.path, body, deadline=deadline, root=form.root)
        listed = answer
        if isinstance(answer, Mapping):
            listed = optional(answer, list, "results") or optional(answer, list, "data")
        url = f"{self.client.address.root if form.root else self.client.address.base}{form.path}"
        expected = f"a score for each of {len(passages)} passages, each once with its `index`"
        if not isinstance(listed, list) or len(listed) != len(passages):
            raise unexpected(url, expected, listed)
        found: dict[int, float] = {}
        for item in listed:
            index = optional(item, int, "index")
            score = item.get(form.score) if isinstance(item, Mapping) else None
            if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
                raise unexpected(url, expected, item)
            if index is None or index in found or not 0 <= index < len(passages):
                raise unexpected(url, expected, item)
            found[index] = float(score)
        usage = Usage(1)
        with suppress(EngineProtocolError):
            usage = usage_of(answer, 1) if isinstance(answer, Mapping) else usage
        return [found[index] for index in range(len(passages))], replace(usage, requests=1)

    def _refusal(self) -> EngineRejected:
        return EngineRejected(
            f"the reranker at {self.client.address.base} judges the relevance of passages and nothing else: it reads, "
            "writes, grades and compares nothing; the engine does"
        )
