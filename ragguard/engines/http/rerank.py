"""`rerank:URL`: a reranker as judge of relevance, by the `/rerank` protocol: a query and its passages go out in one
request, and each passage comes back with a score.

Two forms are known, which differ in names: that of Cohere, Jina, Voyage, vLLM, Infinity and llama.cpp, with
`documents`, and that of TEI, with `texts`. The server's form and path are found out by one short request each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ragguard.engines.base import EngineInfo
from ragguard.engines.engine import ModelEngine
from ragguard.engines.http.http_client import HttpClient, notice_other_model
from ragguard.engines.http.replies import optional, unexpected, usage_of
from ragguard.engines.ranking import KIND, NOTE, Ranker
from ragguard.errors import EngineProtocolError, EngineRejected
from ragguard.records import Usage


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

    async def look(self) -> Ranker:
        """Finds out in which form the server takes a query with passages."""
        refusals = []
        for form in FORMS:
            scores = partial(self._scores, form)
            try:
                await scores("Who runs it?", ["Ada Berg runs it.", "It is red."], None)
            except EngineRejected as error:
                if error.status not in _NOT_THIS_FORM:
                    raise
                refusals.append(str(error))
                continue
            base = self._client.address.base
            info = EngineInfo(
                model=self._model or "reranker",
                kind=KIND,
                fingerprint=f"rerank/{self._model}/{hashlib.sha256(base.encode()).hexdigest()[:12]}",
                prompts="rerank",
                capabilities=frozenset({"batch"}),
                location=base,
                notes=(NOTE,),
            )
            return Ranker(info, scores, f"the reranker at {base}")
        raise EngineRejected(
            f"{self._client.address.base} takes no query with passages: {'; '.join(dict.fromkeys(refusals))}. Name the "
            "address of a reranker whose path ends in /rerank (vLLM, TEI, Infinity, llama.cpp, Cohere, Jina, Voyage)"
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _scores(
        self, form: Form, query: str, passages: Sequence[str], deadline: float | None
    ) -> tuple[list[float], list[int], Usage]:
        """Returns the score of each passage, the tokens that were cut (servers do not tell), and the usage."""
        body: dict[str, Any] = {"query": query, form.passages: list(passages)}
        if self._model:
            body["model"] = self._model
        answer = await self._client.ask(form.path, body, deadline=deadline, root=form.root)
        listed = answer
        if isinstance(answer, Mapping):
            listed = optional(answer, list, "results") or optional(answer, list, "data")
            if self._model:
                notice_other_model(self._client, self._model, answer.get("model"))
        url = f"{self._client.address.root if form.root else self._client.address.base}{form.path}"
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
        scores = [found[index] for index in range(len(passages))]
        return scores, [0] * len(scores), replace(usage, requests=1)
