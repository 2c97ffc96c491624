"""`ragguard doctor`, as a user calls it: against servers in another thread, since it runs a loop of its own."""

from __future__ import annotations

import json
import socket

import pytest
from support.fake_model import FakeModel
from support.misbehaving_server import Reply, serving
from typer.testing import CliRunner

from ragguard.cli.app import app
from ragguard.runtime.notices import NOTICES


def doctor(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_vllm_server_is_well():
    with serving(FakeModel().handle) as url:
        result = doctor(url)
    assert result.exit_code == 0, result.output
    for part in (
        url,
        "(vllm)",
        "fake",
        "default/1",
        "exact: the first token",
        "80.0%",
        "64 prompts",
        "a second",
    ):
        assert part in result.stdout


def test_doctor_names_what_a_plain_server_lacks_and_what_to_change():
    with serving(FakeModel(face="openai", top=5).handle) as url:
        result = doctor(url)
    assert result.exit_code == 0, result.output
    assert "(openai)" in result.stdout
    assert "vLLM gives exact values" in result.stdout


def test_as_json():
    with serving(FakeModel(exact=False, shown=1).handle) as url:
        result = doctor(url, "--json")
    found = json.loads(result.stdout)
    assert found["model"] == "fake"
    assert found["fit"] is True
    assert found["label_mass"] == pytest.approx(1.0)
    assert found["mass_is_bound"] is True
    assert found["many_ms"] > 0
    assert any("newer vLLM" in note for note in found["notes"])


def test_a_model_that_chats_instead_is_not_well(monkeypatch):
    monkeypatch.setattr("support.fake_model.ANSWERS", {"A": 0.1, "Sure": 0.85, "B": 0.05})
    with serving(FakeModel().handle) as url:
        result = doctor(url)
    assert result.exit_code == 1
    assert "not well" in result.stdout
    assert "instruction-tuned" in result.stdout


def test_a_server_that_is_not_there_is_not_well():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = doctor(url)
    assert result.exit_code == 1
    assert "EngineUnreachable" in result.stderr
    assert url in result.stderr
    assert "check the address" in result.stderr


def test_a_password_in_the_address_is_not_shown():
    result = doctor("http://me:secret@127.0.0.1:1/v1")
    assert result.exit_code == 1
    assert "127.0.0.1:1/v1: not well" in result.stderr
    assert "secret" not in result.output


def test_a_model_that_is_not_there_is_not_well():
    with serving(FakeModel(models=("one", "two")).handle) as url:
        result = doctor(url, "--model", "three")
    assert result.exit_code == 1
    assert "it has: one, two" in result.stderr


def test_an_unknown_scheme_is_a_wrong_option():
    result = doctor("nonsense")
    assert result.exit_code == 2
    assert "nano, smol, http" in result.stderr


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_model_name_is_no_command_to_the_terminal(more):
    with serving(FakeModel(models=("fa\x1b[2J\x9b31m\u202eke",)).handle) as url:
        result = doctor(url, *more)
    assert result.exit_code == 0, result.output
    assert not set(result.output) & set("\x1b\x9b\u202e")
    assert "ke" in result.stdout


def test_error_of_an_engine_holds_no_control_characters():
    with serving(FakeModel(models=("one\x1b]0;owned\x07",)).handle) as url:
        result = doctor(url, "--model", "three")
    assert result.exit_code == 1
    assert "owned" in result.stderr
    assert not set(result.output) & set("\x1b\x07")


def test_nano_is_well(caplog):
    NOTICES.forget()
    result = doctor()
    assert result.exit_code == 0, result.output
    ours = [record for record in caplog.records if record.name.startswith("ragguard")]
    assert not ours, "it is asked in words that it knows"
    assert "(nano)" in result.stdout
    assert "exact" in result.stdout


@pytest.mark.vllm
def test_a_real_vllm_server_is_well(vllm_server):
    result = doctor(vllm_server.url)
    assert result.exit_code == 0, result.output
    assert "prompts nano/" in result.stdout
    assert "exact: the first token" in result.stdout


def test_header_before_the_command_goes_to_the_server_and_a_wait_that_it_asks_for_is_kept(monkeypatch):
    monkeypatch.setenv("RAGGUARD_HEADERS", "X-Team: search")
    model, busy = FakeModel(face="openai"), [2]

    def handle(request):
        if (request.headers.get("api-key"), request.headers.get("x-team")) != ("gateway-key", "search"):
            return Reply({"error": {"message": "who are you?"}}, 401)
        busy[0] -= 1
        return Reply({}, 429, {"retry-after": "0.01"}) if busy[0] >= 0 else model.handle(request)

    with serving(handle) as url:
        result = CliRunner().invoke(app, ["--header", "api-key: gateway-key", "doctor", url])
    assert result.exit_code == 0, result.output
    assert "gateway-key" not in result.output
