"""What a server may send back is bounded: in bytes, in depth, and in what it is encoded in."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from contextlib import aclosing

import httpx
import pytest
from support.misbehaving_server import MisbehavingServer, Reply

from ragguard.engines.http.http_client import HttpClient
from ragguard.engines.http.replies import LARGE_REPLIES, MOST_BYTES, BodyTooLarge, read_body
from ragguard.errors import EngineOverloaded, EngineProtocolError, EngineRejected


async def reply_to(reply):
    """What a client makes of a reply."""
    async with (
        MisbehavingServer(lambda request: reply) as server,
        aclosing(HttpClient(server.url, timeout_s=30)) as client,
    ):
        return await client.get("/models")


@pytest.mark.parametrize("status", [200, 400])
async def test_compressed_reply_is_not_asked_for_and_refused(status):
    packed = Reply(gzip.compress(b"{}"), status=status, headers={"Content-Encoding": "gzip"})
    with pytest.raises(EngineProtocolError, match="compressed"):
        await reply_to(packed)


async def test_large_replies_on_many_connections_are_bounded_together():
    limit = MOST_BYTES // 16

    async def trickle():
        for _ in range(4 * limit // 2**14):
            yield b"x" * 2**14
            await asyncio.sleep(0)

    async def read():
        with pytest.raises(BodyTooLarge) as refused:
            await read_body(httpx.Response(200, content=trickle()), limit)
        return refused.value

    tracemalloc.start()
    try:
        errors = await asyncio.gather(*(read() for _ in range(50)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(errors) == 50
    assert peak < 2 * LARGE_REPLIES * limit + 50 * 2**18


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
            await client.get("/models")
    assert sent < 2 * MOST_BYTES


async def test_an_error_of_any_length_is_told_by_its_beginning():
    with pytest.raises(EngineOverloaded, match="503, the server said: busy busy") as caught:
        await reply_to(Reply("busy " * 10_000_000, status=503))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("status", [200, 400])
async def test_json_that_is_too_deep_to_read(status):
    with pytest.raises(EngineRejected if status == 400 else EngineProtocolError):
        await reply_to(Reply("[" * 200_000 + "]" * 200_000, status=status))


@pytest.mark.parametrize("status", [200, 500])
async def test_a_charset_that_nobody_knows(status):
    reply = Reply(b"\xff\xfeno json", status=status, headers={"Content-Type": "text/plain; charset=klingon"})
    with pytest.raises(EngineOverloaded if status == 500 else EngineProtocolError, match="no json"):
        await reply_to(reply)


async def test_a_number_of_many_digits_is_no_json():
    with pytest.raises(EngineProtocolError):
        await reply_to(Reply("9" * 5000))
