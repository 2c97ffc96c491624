"""`rerank:URL`: a reranker as judge of relevance, by the `/rerank` protocol: a query and its passages go out in one
request, and each passage comes back with a score.

Two forms are known, which differ in names: that of Cohere, Jina, Voyage, vLLM, Infinity and llama.cpp, with
`documents`, and that of TEI, with `texts`. The server's form and path are found out by one short request each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragguard.engines.base import EngineInfo
from ragguard.engines.http.http_client import HttpClient, notice_other_model
from ragguard.engines.http.replies import optional, unexpected, usage_of
from ragguard.engines.ranking import KIND, NOTE, Ranker
from ragguard.errors import EngineRejected
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


async def find_ranker(client: HttpClient, model: str) -> Ranker:
    """Finds out in which form a server takes a query with passages; an empty `model` is not named to it."""
    refusals = []
    for form in FORMS:
        scores = partial(_scores, client, model, form)
        try:
            await scores("Who runs it?", ["Ada Berg runs it.", "It is red."], None)
        except EngineRejected as error:
            if error.status not in _NOT_THIS_FORM:
                raise
            refusals.append(str(error))
            continue
        base = client.address.base
        info = EngineInfo(
            model=model or "reranker",
            kind=KIND,
            fingerprint=f"rerank/{model}/{hashlib.sha256(base.encode()).hexdigest()[:12]}",
            prompts="rerank",
            capabilities=frozenset({"batch"}),
            location=base,
            notes=(NOTE,),
        )
        return Ranker(info, scores, f"the reranker at {base}")
    raise EngineRejected(
        f"{client.address.base} takes no query with passages: {'; '.join(dict.fromkeys(refusals))}. Name the "
        "address of a reranker whose path ends in /rerank (vLLM, TEI, Infinity, llama.cpp, Cohere, Jina, Voyage)"
    )


async def _scores(
    client: HttpClient, model: str, form: Form, query: str, passages: Sequence[str], deadline: float | None
) -> tuple[list[float], list[int], Usage]:
    """Returns the score of each passage, the tokens that were cut (servers do not tell), and the usage."""
    body: dict[str, Any] = {"query": query, form.passages: list(passages)}
    if model:
        body["model"] = model
    answer = await client.ask(form.path, body, deadline=deadline, root=form.root)
    listed = answer
    if isinstance(answer, Mapping):
        listed = optional(answer, list, "results") or optional(answer, list, "data")
        if model:
            notice_other_model(client, model, answer.get("model"))
    url = f"{client.address.root if form.root else client.address.base}{form.path}"
    expected = f"a score for each of {len(passages)} passages, each once with its `index`"
    if not isinstance(listed, list) or len(listed) != len(passages):
        raise unexpected(url, expected, listed)
    by_index: dict[int, float] = {}
    for item in listed:
        index = optional(item, int, "index")
        score = item.get(form.score) if isinstance(item, Mapping) else None
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise unexpected(url, expected, item)
        if index is None or index in by_index or not 0 <= index < len(passages):
            raise unexpected(url, expected, item)
        by_index[index] = float(score)
    scores = [by_index[index] for index in range(len(passages))]
    return scores, [0] * len(scores), usage_of(answer, 1)
