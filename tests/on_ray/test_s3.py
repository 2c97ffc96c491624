"""Runs and scores on S3, as a real HTTP server of moto speaks it: processes, a cluster, and a killed driver."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from support.polling import eventually

from ragguard.storage.files.filesystems import locate
from ragguard.storage.files.runfile import write_runs
from tests.on_ray.conftest import made
from tests.on_ray.scored import in_parts, in_store, score

pytestmark = [
    pytest.mark.skipif(find_spec("moto") is None, reason="NO S3 HERE: run `make test-ray`"),
    pytest.mark.slow,
]
SECRET = "s3cr3t-k3y"


@pytest.fixture(scope="module")
def bucket():
    """A function that returns the address of a name in a bucket; the key is in the address, so that actors have it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()

    def address(name, bucket="made"):
        options = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        return f"s3://somebody:{SECRET}@{bucket}/{name}?{options}"

    locate(address("")).filesystem.create_dir("made")
    yield address
    server.stop()


def upload(file, address):
    place = locate(address)
    with place.filesystem.open_output_stream(place.path) as stream:
        stream.write(file.read_bytes())


def all_bytes(address):
    """Returns the contents of all files below an address."""
    from pyarrow.fs import FileSelector

    place = locate(address)
    infos = place.filesystem.get_file_info(FileSelector(place.path, recursive=True))
    return b"".join(place.filesystem.open_input_file(info.path).read() for info in infos if info.is_file)


def test_processes_read_and_write_there_and_no_key_is_shown(bucket, tmp_path):
    write_runs(made(40), tmp_path / "runs.jsonl")
    upload(tmp_path / "runs.jsonl", bucket("few/runs.jsonl"))
    score(tmp_path / "runs.jsonl", "--store", tmp_path / "alone.db", "-c", 1, "--scorers", "utility")
    job = (bucket("few"), "--on", "processes:2", "--out", bucket("few-scores"), "--scorers", "utility")
    said = score(*job)
    assert "40 runs are in s3://" in said
    ours, theirs = in_parts(bucket("few-scores")), in_store(tmp_path / "alone.db")
    assert ours.keys() == theirs.keys()
    assert max(abs(ours[key][0] - theirs[key][0]) for key in ours) <= 5e-5
    again = score(*job)
    assert "40 of them were scored before; asked now: 0 requests" in again
    assert SECRET not in said + again
    assert SECRET.encode() not in all_bytes(bucket("few-scores"))


def test_actors_read_and_write_there_and_a_killed_driver_goes_on(bucket, drivers):
    upload(drivers.folder / "runs.jsonl", bucket("runs.jsonl"))
    drivers.inputs, drivers.out = bucket("runs.jsonl"), bucket("scores")
    driver = drivers.start()
    eventually(lambda: len(drivers.rows()) >= 10, 100, every=0.1)  # the server shares this process
    driver.kill()
    driver.communicate()
    complete, before = set(drivers.rows()), drivers.orders.scored()
    report = drivers.run()
    assert len(complete) <= report["before"] == drivers.runs - report["runs"]
    assert report["failures"] == 0
    assert drivers.all_once()
    assert not [run for run in complete if drivers.orders.scored()[run] > before[run]]
    assert SECRET.encode() not in all_bytes(drivers.out)


@pytest.mark.parametrize("name", ["runs", "out"])
def test_a_bucket_that_is_not_there_is_one_sentence_without_the_key(bucket, tmp_path, name):
    write_runs(made(2), tmp_path / "runs.jsonl")
    nowhere = bucket("runs", "nowhere").replace("&allow_bucket_creation=true", "")
    runs, out = (nowhere, tmp_path / "out") if name == "runs" else (tmp_path / "runs.jsonl", nowhere)
    said = score(runs, "--on", "processes:1", "--out", out, "--scorers", "utility", code=2)
    assert said.splitlines()[-1].startswith("ragguard score: s3://")
    assert "nowhere" in said
    assert "Traceback" not in said
    assert SECRET not in said
