"""Replies of servers: bounded in bytes; servers that are none are told in a sentence."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from support.commands import ragguard
from support.misbehaving_server import MisbehavingServer, Reply, serving

from ragguard.engines.http.http_client import MOST_BYTES, HttpClient
from ragguard.errors import EngineOverloaded, EngineProtocolError, EngineRejected


async def reply_to(reply):
    """What a client makes of a reply."""
    async with (
        MisbehavingServer(lambda request: reply) as server,
        aclosing(HttpClient(server.url, timeout_s=30)) as client,
    ):
        return await client.ask("/models")


async def test_an_error_of_any_length_is_told_by_its_beginning():
    with pytest.raises(EngineOverloaded, match="503, the server said: busy busy") as caught:
        await reply_to(Reply("busy " * 10_000_000, status=503))
    assert len(str(caught.value)) < 1000


DEEP = "[" * 200_000 + "]" * 200_000
KLINGON = {"headers": {"Content-Type": "text/plain; charset=klingon"}}


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (Reply(DEEP, status=200), EngineProtocolError, "not JSON"),
        (Reply(DEEP, status=400), EngineRejected, "400"),
        (Reply(b"\xff\xfeno json", status=200, **KLINGON), EngineProtocolError, "no json"),
        (Reply(b"\xff\xfeno json", status=500, **KLINGON), EngineOverloaded, "no json"),
        (Reply("9" * 5000), EngineProtocolError, "not JSON"),
    ],
    ids=["too deep", "too deep, refused", "unknown charset", "unknown charset, busy", "many digits"],
)
async def test_what_cannot_be_read_is_an_error(reply, error, said):
    with pytest.raises(error, match=said):
        await reply_to(reply)


MODELS = Reply({"data": [{"id": "m"}]})
PAGE = Reply("<!doctype html><title>My shop</title>", headers={"content-type": "text/html"})
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}
ANSWER = {"model": "m", "choices": [CHOICE]}
NOT_FOUND = Reply({"detail": "Not Found"}, 404)


async def test_a_body_that_never_ends_is_left():
    sent = 0

    async def endless(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        try:
            while sent < 100 * MOST_BYTES:
                writer.write(b"1," * 50_000)
                await writer.drain()
                sent += 100_000
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with (
        server,
        aclosing(HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")) as client,
    ):
        with pytest.raises(EngineProtocolError, match="larger than 32 MiB"):
            await client.ask("/models")
    assert sent < 2 * MOST_BYTES


ASKS_WHETHER = "is this an OpenAI-compatible server"
BAD_LISTS = {
    "a page": (PAGE, "is not JSON but begins '<!doctype html><title>My shop", ASKS_WHETHER),
    "a login": (Reply("", 302, {"location": "/login"}), "302", "it points elsewhere: use that address"),
    "nothing there": (NOT_FOUND, "404", f"{ASKS_WHETHER}? Its address mostly ends in /v1"),
    "an application": (
        Reply({"answer": "42"}), "expected a list of models in `data` and got an object with `answer`", ASKS_WHETHER
    ),
    "names alone": (Reply(["m"]), 'expected a list of models in `data` and got ["m"]', ASKS_WHETHER),
    "closed at once": (Reply({}, reset_after=-1), "the connection broke", "may have been restarted"),
}  # fmt: skip
BAD_ANSWERS = {
    "a page": (PAGE, "is not JSON but begins '<!doctype html>", ASKS_WHETHER),
    "nothing": (Reply(""), "is not JSON but begins ''", ASKS_WHETHER),
    "null": (Reply("null"), "expected a reply with a list of `choices` and got null", ASKS_WHETHER),
    "wrapped": (
        Reply({"code": 0, "data": ANSWER}), "a list of `choices` and got an object with `code`, `data`", ASKS_WHETHER
    ),
    "other fields": (
        Reply({"outputs": ["A"]}), "a list of `choices` and got an object with `outputs`", ASKS_WHETHER
    ),
    "no message": (
        Reply({"choices": [{"text": "A"}]}), "a choice with its `message` and got an object with `text`", ASKS_WHETHER
    ),
    "no content": (
        Reply({"choices": [{"message": {"role": "assistant", "text": "A"}}]}),
        "a message with its `content` and got an object with `role`, `text`",
        ASKS_WHETHER,
    ),
    "no choice": (Reply({"choices": []}), "a list of `choices` and got", ASKS_WHETHER),
    "an error with 200": (Reply({"error": {"message": "still loading"}}), "the server said", "still loading"),
    "no such path": (NOT_FOUND, "404", f"{ASKS_WHETHER}? Its address mostly ends in /v1"),
    "other parameters": (
        Reply({"detail": [{"loc": ["body", "query"], "msg": "field required"}]}, 422), "field required", ASKS_WHETHER
    ),
    "cut off": (Reply(ANSWER, reset_after=10), "the connection broke", "the server may have been restarted"),
}  # fmt: skip


def doctor(handle):
    """Returns the last line of `ragguard doctor` about a server, which is not ready."""
    with serving(handle) as url:
        result = ragguard("doctor", url)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "not ready" in result.output
    return result.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/models", kind) for kind in BAD_LISTS] + [("/chat/completions", k) for k in BAD_ANSWERS],
)
def test_what_is_no_list_of_models_or_no_answer_is_said_with_what_came(path, kind):
    reply, came, expected = (BAD_LISTS if path == "/models" else BAD_ANSWERS)[kind]
    line = doctor(lambda request: reply if request.path.endswith(path) else MODELS)
    assert f"/v1{path}: " in line
    assert came in line
    assert expected in line


def test_refusal_in_openais_words_is_not_doubted():
    refusal = Reply({"error": {"message": "no such model"}}, 404)
    assert ASKS_WHETHER not in doctor(lambda r: MODELS if r.path.endswith("/models") else refusal)


@pytest.mark.parametrize(
    ("answering", "said"), [("other-7b", True), ("m-2026-10-01", False), ("hub/m", False)]
)
def test_answer_of_another_model_is_said_once(caplog, answering, said):
    answer = Reply(ANSWER | {"model": answering})
    with serving(lambda request: MODELS if request.path.endswith("/models") else answer) as url:
        ragguard("doctor", url)
    told = f"{url} was asked for m, but {answering} answers"
    assert sum(told in record.getMessage() for record in caplog.records) == said
