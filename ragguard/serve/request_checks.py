"""Checks requests before they are answered: who asks, how large the body is, and whether it has a known form."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import zlib
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ragguard.errors import InvalidInput
from ragguard.schema import read_record
from ragguard.storage.files.jsonl import json_of_line
from ragguard.text.plain import without_surrogates

T = TypeVar("T")

MOST_BYTES = 16 * 2**20
"""The most bytes of a request's body, as it came and unpacked."""
_MEMBERS = 1000
"""The most gzip members of a body."""
PROTOBUF = "application/x-protobuf"
_JSON = "application/json"
BODY_SECONDS = 30.0
"""The most seconds that a body may take to come."""
MOST_HEAD_BYTES = 2**16
"""The most bytes of a request's headers."""
_OPEN = ("/healthz", "/readyz")
"""The addresses that need no token."""
_HERE = (b"127.0.0.1", b"localhost", b"[::1]")
"""The names of this machine by which a service without a token is asked."""
_GUARDING = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
)
"""Headers of every reply: no page of another site may show this one in a frame, and no browser guess its type."""
_OTHER_SITE = "the request is from a page of another site: only programs and pages of this service may ask"
_NO_TOKEN = "a token is needed: authorization: Bearer RAGGUARD_TOKEN"
LATER = {"retry-after": "5"}
_ENDING = "the service ends: send the request again once it has started again"
_ASK = {"www-authenticate": 'Basic realm="ragguard (RAGGUARD_TOKEN as the password)"'}


async def body_of(request: Request) -> bytes:
    """Returns the body of a request, unpacked; refuses one that is too large, or no gzip where it says so."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise HTTPException(415, f"content-encoding {encoding!r}: gzip or none is read")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > MOST_BYTES:
                    message = f"a body of more than {MOST_BYTES:,} bytes; send fewer spans at once"
                    raise HTTPException(413, message)
                pieces.append(piece)
    except TimeoutError as error:
        message = f"the body was not complete after {BODY_SECONDS:g} s; send it again, in smaller pieces"
        raise HTTPException(408, message, {"connection": "close"}) from error
    except ClientDisconnect as error:
        raise HTTPException(499, "the client disconnected before its body was complete") from error
    body = b"".join(pieces)
    return await asyncio.to_thread(_unpacked, body) if encoding == "gzip" else body


def _unpacked(body: bytes) -> bytes:
    """Returns the content of a gzip body, which may have several members, one after the other."""
    members: list[bytes] = []
    left = MOST_BYTES
    while body.strip(b"\0"):  # zeros may pad a file of members
        unpacker = zlib.decompressobj(wbits=31)
        try:
            members.append(unpacker.decompress(body, left + 1))
        except zlib.error as error:
            raise HTTPException(400, f"the body is no gzip: {error}") from error
        left -= len(members[-1])
        if left < 0:
            raise HTTPException(413, f"a body of more than {MOST_BYTES:,} bytes when it is unpacked")
        if len(members) > _MEMBERS:  # each copies what comes behind it
            raise HTTPException(413, f"a gzip of more than {_MEMBERS:,} members; pack the body as one")
        if not unpacker.eof:
            raise HTTPException(400, "the body is no gzip: it ends too early")
        body = unpacker.unused_data
    return b"".join(members)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of work for a client; cancels the work if the client leaves. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(499, "the client disconnected, so its request was cancelled")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def sent(kind: type[T], request: Request) -> T:
    """Returns the body of a request as a record, read on a thread; raises InvalidInput for the first wrong field, by
    its path."""
    body = await body_of(request)
    return await asyncio.to_thread(lambda: record_of(kind, json_of_line(body)))


def record_of(kind: type[T], data: object) -> T:
    """Returns the body of a request as a record; raises InvalidInput for the first wrong field, by its path."""
    try:
        return read_record(kind, data)
    except InvalidInput as wrong:
        raise InvalidInput(wrong.argument or "the body", wrong.value, wrong.allowed) from wrong


def kind_of(request: Request) -> str:
    """Returns the content type of an OTLP request: protobuf or JSON; refuses any other."""
    kind = _content_type(request)
    if kind not in (PROTOBUF, _JSON):
        raise HTTPException(415, f"content-type {kind!r}: {PROTOBUF} and {_JSON} are read")
    return kind


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def exported(kind: str, rejected: int, message: str) -> Response:
    """Returns the reply to a request whose spans were taken, except those that were rejected."""
    if kind == _JSON:
        partial = {"rejectedSpans": str(rejected), "errorMessage": message}
        return JSONResponse({"partialSuccess": partial} if rejected else {})
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    return Response(response.SerializeToString(), media_type=PROTOBUF)


def failed(request: Request, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error as OTLP has it: a google.rpc.Status in the form of the request."""
    message = without_surrogates(message)  # a field's name in JSON may hold a half of a pair
    if _content_type(request) != PROTOBUF:
        return JSONResponse({"message": message}, status, headers)
    text = message.encode()[:120]  # the field `message` of a Status
    return Response(b"\x12" + bytes([len(text)]) + text, status, headers, PROTOBUF)


class Door:
    """Lets in requests that bring the token, counts all, and answers those that the server gives up at its end."""

    def __init__(self, app: ASGIApp, requests: Counter[tuple[str, str]], token: str) -> None:
        self._app, self._requests, self._token = app, requests, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def counted(message: Any) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_GUARDING]}
                route = scope.get("route")
                self._requests[getattr(route, "path", "other"), str(message["status"])] += 1
            await send(message)

        headers, answer = dict(scope["headers"]), self._app
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEAD_BYTES:
            answer = JSONResponse({"message": f"headers of more than {MOST_HEAD_BYTES:,} bytes"}, 431)
        elif self._is_of_another_site(headers):
            answer = JSONResponse({"message": _OTHER_SITE}, 403)
        elif self._token and scope["path"] not in _OPEN and not self._knows(headers):
            answer = JSONResponse({"message": _NO_TOKEN}, 401, _ASK)
        try:
            await answer(scope, receive, counted)
        except asyncio.CancelledError:
            if started:
                await send({"type": "http.response.body"})
            else:
                await JSONResponse({"message": _ENDING}, 503, LATER)(scope, receive, counted)

    def _is_of_another_site(self, headers: Mapping[bytes, bytes]) -> bool:
        """Returns whether a browser sends this from another site, or without a token under a name of another site."""
        host = headers.get(b"host", b"").lower()
        if (origin := headers.get(b"origin")) is not None and origin.lower().partition(b"://")[2] != host:
            return True
        name = host.rpartition(b":")[0] if host.rpartition(b":")[2].isdigit() else host
        return not self._token and name not in _HERE

    def _knows(self, headers: Mapping[bytes, bytes]) -> bool:
        kind, _, brought = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"basic":
            try:
                brought = base64.b64decode(brought.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(brought.strip(), self._token)
