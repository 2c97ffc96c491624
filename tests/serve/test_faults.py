"""The service under faults: nothing that was acknowledged is lost, nothing stands still, and the loop stays free."""

import asyncio
import gzip
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import httpx
import pytest
from support.captured import ids
from support.polling import eventually
from support.served import served
from support.traced import documents, otlp_json, span

from ragguard import RagGuard
from ragguard.errors import StoreError
from ragguard.serve import request_checks
from ragguard.serve.ingest import Ingest
from ragguard.storage.files.runfile import run_of_data
from ragguard.storage.sqlite.reader import StoreReader
from ragguard.storage.sqlite.store import Store
from ragguard.traces.spool import Spool
from ragguard.traces.trace_spans import packed

ROOT = span(1, at=(1, 99), openinference__span__kind="CHAIN", input__value="Who?", output__value="Ada")


def hop(number, *found, parent=1):
    return span(
        number, parent, openinference__span__kind="RETRIEVER", input__value="who", **documents(*found)
    )


async def send(asked, *spans, after=0.0):
    asked.clock[0] += after
    reply = await asked.post("/v1/traces", json=otlp_json(*spans))
    assert (reply.status_code, reply.json()) == (200, {})


async def runs(asked, after):
    asked.clock[0] += after
    await asked.ingest.hand_over()
    return [(run.question, run.answer, [ids(step.passages) for step in run.steps]) for run in asked.rg.runs()]


WHOLE = [("Who?", "Ada", [["a"]])]


@pytest.mark.parametrize("later", [100, 3600, 80_000], ids=["soon", "after an hour", "after a day"])
async def test_a_root_that_comes_after_the_trace_was_quiet_amends_its_run(client, later):
    async with client(scorers=()) as asked:
        await send(asked, hop(2, "a"))
        assert await runs(asked, 61) == [("who", None, [["a"]])]
        for _ in range(3):
            await asked.ingest.hand_over()  # spans are forgotten now and then
            asked.clock[0] += later / 3
        await send(asked, ROOT)
        assert await runs(asked, 6) == WHOLE


async def test_a_root_above_the_one_that_was_missing_leaves_one_run(client):
    async with client(scorers=()) as asked:
        await send(asked, hop(3, "a", parent=2))
        assert len(await runs(asked, 61)) == 1
        await send(asked, ROOT, span(2, 1, openinference__span__kind="CHAIN"))
        assert await runs(asked, 6) == WHOLE


async def test_a_root_that_comes_after_a_restart_amends_its_run(tmp_path):
    """The spool outlives the process, so the spans of a quiet trace are there for a root that comes later."""
    spool = Spool(tmp_path / "spans")
    spool.add([packed(hop(2, "a"))], 1.0)
    spool.handed([hop(2).trace_id], 100.0)
    spool.close()
    again = Spool(tmp_path / "spans")
    again.forget(10_000.0, -1.0)
    again.add([packed(ROOT)], 10_000.0)
    assert len(again.spans(ROOT.trace_id)) == 2
    again.close()


def emptied(path):
    path.write_bytes(b"")


def replaced(path):
    path.unlink()
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [emptied, replaced, os.remove], ids=["truncated", "replaced", "deleted"])
def test_a_spool_whose_file_is_harmed_acknowledges_nothing(tmp_path, harm):
    spool = Spool(path := tmp_path / "spans")
    spool.add([packed(hop(2, "a"))])
    harm(path)
    with pytest.raises(StoreError, match="spool was"):
        spool.add([packed(hop(3, "a"))])
    assert "start the service again" in spool.outage
    spool.close()


async def test_the_service_is_not_ready_while_its_spool_is_gone(client, tmp_path, caplog):
    async with client(scorers=()) as asked:
        asked.ingest.spool = Spool(tmp_path / "spans")
        asked.endpoints._loading = False
        assert (await asked.get("/readyz")).status_code == 200
        (tmp_path / "spans").unlink()
        reply = await asked.post("/v1/traces", json=otlp_json(ROOT))
        assert (reply.status_code, (await asked.get("/readyz")).status_code) == (503, 503)
    assert "requests are refused: the file of the spool was moved, deleted or replaced" in caplog.text


def test_a_store_whose_file_is_truncated_in_place_is_an_outage_and_flush_is_false(tmp_path):
    with RagGuard("nano", store=tmp_path / "s.db", scorers=()) as rg:
        with rg.run("who?") as run:
            run.retrieved("who", ["a"])
        assert rg.flush(30)
        with closing(sqlite3.connect(tmp_path / "s.db")) as db:
            db.execute("PRAGMA wal_checkpoint")
        with rg.run("who?") as run:
            run.retrieved("who", ["a"])
        assert rg.flush(30)
        os.truncate(tmp_path / "s.db", 0)
        with rg.run("who else?") as run:
            run.retrieved("who", ["b"])
        report = rg.flush(1)
        assert not report
        assert "truncated" in rg.store.outage


def test_a_store_that_another_process_packs_goes_on(tmp_path):
    with closing(Store(tmp_path / "s.db")) as store:
        with RagGuard("nano", store=tmp_path / "s.db", scorers=()) as rg:
            for number in range(50):
                with rg.run(f"{number}?") as run:
                    run.retrieved("who", [f"{number} " * 2000])
        store.prune(2**62)
        with closing(sqlite3.connect(tmp_path / "s.db")) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.housekeep()
        assert store.outage == ""


async def test_gzip_of_several_members_is_read_whole(client):
    async with client() as asked:
        lines = [json.dumps({"id": name, "question": "q?", "steps": []}).encode() + b"\n" for name in "abc"]
        body = b"".join(map(gzip.compress, lines))
        reply = await asked.post("/v1/runs", content=body, headers={"content-encoding": "gzip"})
        assert reply.json() == {"accepted": 3, "rejected": []}
        body = gzip.compress(b"") * 400_000  # would be copied 400,000 times
        reply = await asked.post("/v1/runs", content=body, headers={"content-encoding": "gzip"})
        assert (reply.status_code, "more than 1,000 members" in reply.text) == (413, True)


async def test_a_body_that_does_not_end_is_refused_and_keeps_no_spans_out(client, monkeypatch):
    monkeypatch.setattr(request_checks, "BODY_SECONDS", 0.5)

    async def endless():
        yield b"{"
        await asyncio.sleep(3600)

    async with client() as asked:
        json_type = {"content-type": "application/json"}
        slow = [
            asyncio.ensure_future(asked.post("/v1/traces", content=endless(), headers=json_type))
            for _ in range(9)
        ]
        await asyncio.sleep(0)
        await send(asked, ROOT, hop(2, "a"))
        assert {reply.status_code for reply in await asyncio.gather(*slow)} == {408}


async def test_a_span_that_cannot_be_read_is_set_aside_and_the_other_traces_go_on(client):
    async with client(scorers=()) as asked:
        await send(asked, ROOT, hop(2, "a"))
        other = span(9, trace="f" * 32, openinference__span__kind="RETRIEVER", **documents("b"))
        await send(asked, other)
        for body in (b'"x"\n\xff\xff\xff', "[1, 2", '{"a": 1}'):
            asked.ingest.spool._db.execute(
                "INSERT INTO span SELECT number, ?, ? FROM trace", (90 + len(body), body)
            )
        assert sorted(len(steps) for _, _, steps in await runs(asked, 61)) == [1, 1]
        await asked.ingest.show_open()
        assert asked.ingest.spool.counts["left out, as they cannot be read from the spool"] == 6


def test_two_services_on_one_store_are_refused_at_the_start(tmp_path):
    spool = Spool(tmp_path / "spans")
    with pytest.raises(StoreError, match="another process uses it"):
        Spool(tmp_path / "spans")
    spool.close()
    Spool(tmp_path / "spans").close()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_is_set_back_delays_no_trace(tmp_path, monkeypatch, restarted):
    real, real_ns = time.time, time.time_ns
    if restarted:  # the times of the spool are those of a process whose clock was ahead
        with closing(Spool(tmp_path / "spool")) as spool:
            spool.add([packed(ROOT)], real() + 3600)
    rg = RagGuard("nano", store=None, scorers=())
    with closing(Spool(tmp_path / "spool")) as spool:
        ingest = Ingest(rg, spool, settle=0, quiet=0, live=False)
        if not restarted:
            asyncio.run(ingest.take(lambda: [packed(ROOT)]))
            monkeypatch.setattr(time, "time", lambda: real() - 3600)
            monkeypatch.setattr(time, "time_ns", lambda: real_ns() - 3_600_000_000_000)
        asyncio.run(ingest.hand_over())
        assert spool.waiting == 0
    rg.close()


async def test_headers_that_are_too_large_are_refused(client):
    async with client(scorers=()) as asked:
        assert (await asked.get("/healthz", headers={"x": "a" * 60_000})).status_code == 200
        assert (await asked.get("/healthz", headers={"x": "a" * 100_000})).status_code == 431


async def test_names_with_half_a_character_are_refused_by_name_and_not_by_a_500(client):
    async with client() as asked:
        body = b'{"run": {"question": "q?", "\\ud800": 1, "steps": []}}'
        reply = await asked.post("/v1/advise", content=body)
        assert reply.status_code == 400
        reply = await asked.post("/v1/runs", content=b'{"question": "q?", "\\ud800": 1, "steps": []}')
        assert (reply.status_code, len(reply.json()["rejected"])) == (200, 1)


async def test_replies_forbid_frames_of_other_sites_and_host_names_may_have_capitals(client):
    async with client() as asked:
        reply = await asked.get("/healthz", headers={"host": "LocalHost:4318"})
        assert reply.status_code == 200
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]


async def test_what_a_client_that_left_asked_for_is_given_up(client):
    given_up = asyncio.Event()

    async def never(*_):
        try:
            await asyncio.sleep(3600)
        finally:
            given_up.set()

    async def app(receive):
        scope = {
            "type": "http", "method": "POST", "path": "/v1/prune", "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }  # fmt: skip
        await asked._transport.app(scope, receive, lambda _: asyncio.sleep(0))

    messages = [
        {"type": "http.request", "body": b'{"query": "q", "passages": ["a"]}', "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive():
        await asyncio.sleep(0.05)
        return messages.pop(0)

    async with client() as asked:
        asked.endpoints.guard.aprune = never
        async with asyncio.timeout(10):
            await app(receive)
            await given_up.wait()


@pytest.mark.slow
def test_a_service_that_starts_again_scores_what_was_left_without_a_new_trace(tmp_path):
    with served(tmp_path, "--settle", "0") as service:
        line = json.dumps({"id": "r", "question": "who?", "steps": [{"query": "who", "passages": ["a"]}]})
        with closing(
            Store(tmp_path / "r.db")
        ) as before:  # another process, which captures and does not score
            assert httpx.get(f"{service.url}/healthz").status_code == 200
            service.process.kill()
            service.process.wait()
            before.add_due([run_of_data(json.loads(line))])
    with served(tmp_path), closing(StoreReader(tmp_path / "r.db")) as store:
        eventually(lambda: store.scores("r") or store.failures("r"), 60)


@contextmanager
def posting(service, path, body):
    """A socket on which a request was begun that gets its reply later."""
    with socket.create_connection(service.url.removeprefix("http://").split(":"), 60) as sender:
        head = b"%s HTTP/1.1\r\nhost: localhost\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
        sender.sendall(head % (path, len(body)) + body)
        yield sender


@pytest.mark.slow
@pytest.mark.parametrize("scorers", ["none", "utility"])
def test_many_lines_hold_up_neither_healthz_nor_the_end(tmp_path, scorers):
    """The end takes 3 s on an idle machine, where 5 are allowed; the 8 s here are for a machine that is busy."""
    line = b'{"id": "%d", "question": "who?", "steps": [{"query": "who", "passages": ["a", "b"]}]}\n'
    lines = gzip.compress(b"".join(line % number for number in range(150_000)))
    with (
        served(tmp_path, "--scorers", scorers) as service,
        httpx.Client(timeout=2.5) as asked,
        posting(service, b"POST /v1/runs", lines) as post,
        posting(service, b"GET /events", b"") as page,
    ):
        for _ in range(100 if scorers == "none" else 1):
            assert asked.get(f"{service.url}/healthz").status_code == 200
        eventually(lambda: runs_in(tmp_path / "r.db"), 60)
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(8)
        assert post.recv(2**16).startswith(b"HTTP/1.1 503")
        assert page.makefile("rb").read().endswith(b"\r\n0\r\n\r\n"), "the stream has an end"
        assert not re.search("Traceback|ERROR", service.process.stderr.read())
    assert 0 < runs_in(tmp_path / "r.db") < 150_000, "it ended in the middle"


@pytest.mark.slow
def test_a_service_whose_folder_is_deleted_says_so_without_tracebacks(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with served(folder) as service:
        line = {"content": b'{"id": "a", "question": "q", "steps": []}'}
        assert httpx.post(f"{service.url}/v1/runs", **line, timeout=30).json()["accepted"] == 1
        shutil.rmtree(folder)
        assert httpx.post(f"{service.url}/v1/runs", **line, timeout=30).status_code == 503
        assert httpx.post(f"{service.url}/v1/traces", json=otlp_json(ROOT), timeout=30).status_code == 503
        assert httpx.get(f"{service.url}/readyz").status_code == 503
        metrics = httpx.get(f"{service.url}/metrics")
        assert (metrics.status_code, "ragguard_runs_pending" in metrics.text) == (200, False)
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(15)
        said = service.process.stderr.read()
    assert "so unfinished work is lost" in said
    assert not re.search("Traceback|continues when it is opened|attach the RagGuard", said), said


@pytest.mark.slow
def test_ctrl_c_and_clients_that_leave_print_no_traceback(tmp_path):
    with served(tmp_path, RAGGUARD_TOKEN="a-token\n") as service:
        said = {"authorization": "Bearer a-token"}
        assert httpx.get(f"{service.url}/metrics", headers=said).status_code == 200
        head = b"POST %s HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-token\r\ncontent-length: %d\r\n\r\n"
        bodies = {
            b"/v1/runs": b'{"question": "who?", "steps": []}\n' * 20_000, b"/v1/traces": b"half",
            b"/v1/prune": json.dumps({"query": "who", "passages": ["a" * 9000] * 20}).encode(),
        }  # fmt: skip
        for path, body in bodies.items():
            for whole in (len(body), len(body) + 1):
                with socket.create_connection(service.url.removeprefix("http://").split(":"), 60) as sender:
                    sender.sendall(head % (path, whole) + body)
        with socket.create_connection(service.url.removeprefix("http://").split(":"), 60) as page:
            page.sendall(b"GET /events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-token\r\n\r\n")
            page.recv(1)
        assert httpx.get(f"{service.url}/metrics", headers=said).status_code == 200
        service.process.send_signal(signal.SIGINT)
        service.process.wait(15)
        assert not re.search("Traceback|ERROR", service.process.stderr.read())


def runs_in(path):
    with closing(StoreReader(path)) as store:
        return store.run_count()


@pytest.mark.slow
def test_connections_that_ask_nothing_are_closed(tmp_path):
    program = (
        "import ragguard.serve.connections as c; c.IDLE_SECONDS = 0.5\n"
        "import sys; from ragguard.cli.app import app\n"
        f"app(['serve', '-e', 'nano', '-s', {str(tmp_path / 'r.db')!r}, '--port', '0', '--scorers', 'none'])"
    )
    process = subprocess.Popen([sys.executable, "-c", program], text=True, stderr=subprocess.PIPE)
    try:
        port = int(re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())[1])
        with (
            socket.create_connection(("127.0.0.1", port), 30) as silent,
            socket.create_connection(("127.0.0.1", port), 30) as half,
        ):
            half.sendall(b"GET /healthz HTTP/1.1\r\nhost: loc")
            assert silent.recv(1) == b""
            assert half.recv(1) == b""
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    finally:
        process.kill()
        process.communicate()
