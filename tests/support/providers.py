"""Stand-ins for the servers that people have, each held to the documented behaviour of its API: which fields it takes,
refuses or ignores, where the key goes, and how it spells its errors. What they answer is `FakeModel`'s."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from support.fake_model import FakeModel
from support.misbehaving_server import Reply, Request

KEY = "sk-of-a-test-0123456789"
OPENAI_FIELDS = frozenset(
    "model messages max_tokens max_completion_tokens temperature top_p n seed logprobs top_logprobs stop stream "
    "reasoning_effort".split()
)


@dataclass(frozen=True)
class Provider:
    """A server, the address and the key that its users write, and what ragguard is to find there."""

    handle: Callable[[Request], Reply]
    path: str
    """The address behind the host: the path, the query and the model."""
    key_name: str = "OPENAI_API_KEY"
    """The variable of the environment that holds the key; '' where the server wants none."""
    exact: bool = True
    """True where the server shows log-probabilities."""
    most_choices: int = 128
    """The most answers that it gives to one request."""


def refused(message: str, status: int = 400, **more: Any) -> Reply:
    """Returns an error as OpenAI's API spells it."""
    return Reply({"error": {"message": message, "type": "invalid_request_error", **more}}, status)


def bearer(request: Request) -> bool:
    """Returns whether a request has the key as OpenAI's clients send it."""
    return request.headers.get("authorization") == f"Bearer {KEY}"


def unknown(body: dict[str, Any], known: Collection[str]) -> str:
    """Returns the first field of a body that an API does not know; '' for none."""
    return next((name for name in body if name not in known), "")


def openai(model: str, *, thinks: bool = False) -> Callable[[Request], Reply]:
    """Returns OpenAI's own API. Unknown fields and more than 20 top log-probabilities are errors; a model that thinks
    takes neither `max_tokens` nor another temperature than 1, and shows no log-probabilities."""
    fake = FakeModel(face="openai", models=(model,))

    def handle(request: Request) -> Reply:
        if not bearer(request):
            return refused("Incorrect API key provided.", 401, code="invalid_api_key")
        if not request.path.endswith("/chat/completions"):
            return fake.handle(request)
        body = request.json
        if name := unknown(body, OPENAI_FIELDS):
            return refused(f"Unrecognized request argument supplied: {name}")
        if body.get("top_logprobs", 0) > 20:
            return refused(
                "Invalid value for 'top_logprobs': must be less than or equal to 20.", param="top_logprobs"
            )
        if not thinks:
            return fake.handle(request)
        if "max_tokens" in body:
            return refused(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.", param="max_tokens", code="unsupported_parameter",
            )  # fmt: skip
        if body.get("temperature", 1) != 1:
            return refused(
                "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is "
                "supported.", param="temperature", code="unsupported_value",
            )  # fmt: skip
        if body.get("logprobs"):
            return refused("You are not allowed to request logprobs from this model", 403)
        reply = fake.handle(request)
        if isinstance(reply.body, dict) and "usage" in reply.body:
            reply.body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 0}
        return reply

    return handle


def azure(request: Request) -> Reply:
    """Answers as Azure's deployments: the model stands in the path, the version in the query, the key in a header of
    its own; there is no list of models."""
    if request.headers.get("api-key") != KEY:
        return Reply(
            {"error": {"code": "401", "message": "Access denied due to invalid subscription key"}}, 401
        )
    if (
        request.path != "/openai/deployments/judge/chat/completions"
        or request.query != "api-version=2024-10-21"
    ):
        return Reply({"error": {"code": "404", "message": "Resource not found"}}, 404)
    return FakeModel(face="openai", models=("judge",)).handle(replace(request, path="/v1/chat/completions"))


def ollama(*, shows: bool) -> Callable[[Request], Reply]:
    """Returns Ollama: models have a tag, unknown fields and `n` are ignored; log-probabilities since 0.12.11."""
    fake = FakeModel(face="openai", models=("llama3.2:latest",), many="ignored", top=20 if shows else 0)
    return fake.handle


def gemini(request: Request) -> Reply:
    """Answers as Gemini's endpoint: models are listed as `models/NAME`, errors come in a list, unknown fields
    and log-probabilities are errors, at most 8 candidates, and a text may come in pieces."""
    fake = FakeModel(face="openai", models=("models/gemini-2.0-flash", "gemini-2.0-flash"))
    request = replace(request, path=request.path.replace("/v1beta/openai", "/v1"))
    if not bearer(request):
        return Reply(
            [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}], 400
        )
    if not request.path.endswith("/chat/completions"):
        return fake.handle(request)
    body = request.json
    said = ""
    if name := unknown(body, OPENAI_FIELDS - {"logprobs", "top_logprobs", "seed"}):
        said = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    elif body.get("n", 1) > 8:
        said = "Unable to submit request because it has a candidateCount value of more than 8; n must be at most 8."
    if said:
        return Reply([{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}], 400)
    reply = fake.handle(request)
    for choice in reply.body.get("choices", ()) if isinstance(reply.body, dict) else ():
        text = choice["message"]["content"]
        choice["message"]["content"] = [
            {"type": "text", "text": text[:1]},
            {"type": "text", "text": text[1:]},
        ]
    return reply


def claude(request: Request) -> Reply:
    """Answers as Claude's endpoint: `n` must be 1, a temperature is at most 1, log-probabilities and the seed
    are ignored."""
    fake = FakeModel(face="openai", models=("claude-haiku",), top=0)
    if not bearer(request):
        return Reply(
            {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}, 401
        )
    if request.path.endswith("/chat/completions") and request.json.get("n", 1) != 1:
        return refused("n: must be exactly 1")
    return fake.handle(request)


PROVIDERS = {
    "OpenAI": Provider(openai("gpt-4o-mini"), "/v1#gpt-4o-mini"),
    "OpenAI, a thinking model": Provider(openai("o4-mini", thinks=True), "/v1#o4-mini", exact=False),
    "Azure": Provider(
        azure, "/openai/deployments/judge?api-version=2024-10-21", key_name="AZURE_OPENAI_API_KEY"
    ),
    "Ollama": Provider(ollama(shows=True), "/v1#llama3.2", key_name="", most_choices=1),
    "Ollama without log-probabilities": Provider(
        ollama(shows=False), "/v1#llama3.2", key_name="", exact=False, most_choices=1
    ),
    "Gemini": Provider(
        gemini, "/v1beta/openai#gemini-2.0-flash", key_name="RAGGUARD_API_KEY", exact=False, most_choices=8
    ),
    "Claude": Provider(claude, "/v1#claude-haiku", key_name="RAGGUARD_API_KEY", exact=False, most_choices=1),
}
