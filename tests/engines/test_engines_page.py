"""The page about engines: each address of its table, and each of its commands, reaches the server it stands for."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.commands import ragguard
from support.fake_model import FakeModel
from support.misbehaving_server import MisbehavingServer, Reply

from ragguard.engines.connect import open_engine

_ROOT = Path(__file__).parents[2]
PAGE = (_ROOT / "docs" / "how-to" / "engines.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| `(https?://[^`]+)` \| ([^|]+) \|", PAGE, re.MULTILINE)
COMMANDS = list(dict.fromkeys(re.findall(r"^ragguard .*?\"?(https?://[^\s\"]+)", PAGE, re.MULTILINE)))
ONLY_MODEL = {"vLLM", "llama.cpp"}


async def reached(address: str) -> tuple[str, list[str]]:
    """Returns the model that is found, and the paths of the requests, with the server of an address on this machine."""
    parts = urlsplit(address)
    base = parts.path.rstrip("/")
    name = parts.fragment or ("DEPLOYMENT" if "deployments" in base else "only-model")
    model = FakeModel(face="openai", models=(name,))

    def handle(request):
        ours = request.path.removeprefix(base)
        if not request.path.startswith(base) or request.query != parts.query:
            return Reply({"error": "no such path"}, 404)
        if "deployments" in base and (ours == "/models" or "api-key" not in request.headers):
            return Reply({"error": {"message": "Resource not found"}}, 404)
        return model.handle(type(request)(request.method, f"/v1{ours}", request.headers, request.body))

    async with MisbehavingServer(handle) as server:
        here = server.url.removesuffix("/v1").removeprefix("http://")
        engine = open_engine(parts._replace(scheme="http", netloc=here).geturl(), api_key="some-key-of-mine")
        probs = await engine.label_probs(["Who?"], ("A", "B"))
        assert probs.p[0, 0] == pytest.approx(0.6)
        found = (await engine.info()).model
        await engine.aclose()
        return found, [request.path for request in server.requests]


def test_table_names_the_servers_that_people_have():
    assert {
        "vLLM",
        "OpenAI",
        "Azure",
        "llama.cpp",
        "Ollama",
        "transformers serve",
        "LiteLLM's proxy",
        "OpenRouter",
        "Gemini",
        "Claude",
    } == {server for server, _, _ in ROWS}
    assert len(COMMANDS) == 5


@pytest.mark.parametrize(("server", "address"), [(server, address) for server, address, _ in ROWS])
async def test_address_of_the_table_reaches_its_model_under_its_path(server, address):
    model, paths = await reached(address)
    assert (model == "only-model") == (server in ONLY_MODEL)
    assert all(path.startswith(urlsplit(address).path) for path in paths)


def test_page_shows_the_key_and_the_address_of_the_servers_that_most_have():
    assert "export OPENAI_API_KEY=" in PAGE
    for part in (
        "api.openai.com/v1#",
        "localhost:11434/v1#",
        "localhost:8080/v1",
        "openai.azure.com/openai/deployments/",
    ):
        assert re.search(rf"^ragguard doctor .*{re.escape(part)}", PAGE, re.MULTILINE), part


def test_help_of_doctor_shows_keys_and_the_commands_of_the_page():
    shown = ragguard("doctor", "--help").output
    named = re.findall(r"^ +ragguard doctor \"?(https?://[^\s\"]+)", shown, re.MULTILINE)
    assert len(named) == 3
    assert set(named) <= set(COMMANDS)
    assert "OPENAI_API_KEY" in shown


@pytest.mark.parametrize("address", COMMANDS)
async def test_address_of_a_command_reaches_a_server(address):
    _, paths = await reached(address)
    assert any(path.startswith(urlsplit(address).path) for path in paths)
