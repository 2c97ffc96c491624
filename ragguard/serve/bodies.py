"""Reads the bodies of requests within limits, and writes replies of OTLP in the form of the request."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ragguard.errors import InvalidInput
from ragguard.schema import read_record
from ragguard.traces.trace_spans import PackedSpan, json_body, packed, packed_protobuf, spans_in

T = TypeVar("T")

MOST_BYTES = 16 * 2**20
"""The most bytes of a request's body, as it came and unpacked."""
PROTOBUF = "application/x-protobuf"
_JSON = "application/json"


async def body_of(request: Request) -> bytes:
    """Returns the body of a request, unpacked; refuses one that is too large, or no gzip where it says so."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise HTTPException(415, f"content-encoding {encoding!r}: gzip or none is read")
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MOST_BYTES:
            raise HTTPException(413, f"a body of more than {MOST_BYTES:,} bytes; send fewer spans at once")
        pieces.append(piece)
    body = b"".join(pieces)
    return _unpacked(body) if encoding == "gzip" else body


def _unpacked(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(body, MOST_BYTES + 1)
    except zlib.error as error:
        raise HTTPException(400, f"the body is no gzip: {error}") from error
    if len(unpacked) > MOST_BYTES:
        raise HTTPException(413, f"a body of more than {MOST_BYTES:,} bytes when it is unpacked")
    if not unpacker.eof:
        raise HTTPException(400, "the body is no gzip: it ends too early")
    return unpacked


async def json_of(request: Request) -> Any:
    """Returns the JSON in a request's body."""
    body = await body_of(request)
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON: {error}") from error


def record_of(kind: type[T], data: object) -> T:
    """Returns the body of a request as a record; raises InvalidInput for the first wrong field, by its path."""
    try:
        return read_record(kind, data)
    except InvalidInput as wrong:
        raise InvalidInput(wrong.argument or "the body", wrong.value, wrong.allowed) from wrong


def spans_of(body: bytes, kind: str) -> Iterable[PackedSpan]:
    """Yields the spans in the body of an OTLP request of this content type; raises InvalidInput for a body that is
    none."""
    return packed_protobuf(body) if kind == PROTOBUF else map(packed, spans_in(json_body(body)))


def kind_of(request: Request) -> str:
    """Returns the content type of an OTLP request: protobuf or JSON; refuses any other."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (PROTOBUF, _JSON):
        raise HTTPException(415, f"content-type {kind!r}: {PROTOBUF} and {_JSON} are read")
    return kind


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


def failed(kind: str, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Returns an error as OTLP has it: a google.rpc.Status in the form of the request."""
    if kind != PROTOBUF:
        return JSONResponse({"message": message}, status, headers)
    text = message.encode()[:120]
    return Response(
        b"\x12" + bytes([len(text)]) + text, status, headers, PROTOBUF
    )  # the field `message` of a Status
