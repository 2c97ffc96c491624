"""A reranker behind HTTP, in the forms of Cohere and its likes, Voyage and TEI: its score is how many words of the
query the passage has, as a logit, and more for the right passages of the examination, whose near misses have the same
words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from support.misbehaving_server import Reply, Request

from ragguard.scorers.exam.cases import exam_cases

RerankForm = Literal["cohere", "voyage", "tei"]
FORMS: tuple[RerankForm, ...] = ("cohere", "voyage", "tei")


@dataclass
class RerankServer:
    """`MisbehavingServer(RerankServer(form).handle)`."""

    form: RerankForm = "cohere"
    asked: list[tuple[str, int]] = field(default_factory=list)
    """The query and the number of passages of each request."""

    def handle(self, request: Request) -> Reply:
        """The answer to a request: the best passage first."""
        if request.path not in ("/v1/rerank", "/rerank") or (request.path == "/v1/rerank") == (
            self.form == "tei"
        ):
            return Reply({"detail": "Not Found"}, 404)
        passages = request.json.get("texts" if self.form == "tei" else "documents")
        if passages is None:
            return Reply({"error": "missing field `texts`", "error_type": "Validation"}, 422)
        query = request.json["query"]
        self.asked.append((query, len(passages)))
        scores = sorted(((score(query, text), at) for at, text in enumerate(passages)), reverse=True)
        name = "score" if self.form == "tei" else "relevance_score"
        rows: list[dict[str, Any]] = [{"index": at, name: value} for value, at in scores]
        if self.form == "tei":
            return Reply(rows)
        usage = {"usage": {"total_tokens": 9 * len(passages)}}
        return Reply({"data" if self.form == "voyage" else "results": rows, **usage})


def score(query: str, text: str) -> float:
    """The score of a passage."""
    known = 3.0 * any(text == one.gold for one in exam_cases().questions)
    words = set(query.lower().strip("?").split())
    return 8.0 * len(words & set(text.lower().rstrip(".").split())) / len(words) - 4.0 + known
