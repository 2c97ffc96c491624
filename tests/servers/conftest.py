"""Real servers that people have beside vLLM, started once each and stopped with the tests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.environments import SERVERS
from support.server_process import free_port, healthy_server

from ragguard.engines.llama.smol import smol_path
from ragguard.engines.nano.nano_engine import write_checkpoint

LITELLM_KEY = "sk-of-the-proxy"


def pytest_collection_modifyitems(items):
    if not SERVERS.ready():
        for item in items:
            if "servers" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="NO servers HERE: run `make test-servers`"))


@pytest.fixture(autouse=True)
def key(monkeypatch):
    """Puts the proxy's key into the environment; the other servers want none."""
    monkeypatch.setenv("RAGGUARD_API_KEY", LITELLM_KEY)


@pytest.fixture(scope="session")
def llama_cpp(tmp_path_factory):
    """The address of a llama.cpp that serves smol."""
    weights = smol_path()
    if weights is None:
        pytest.skip("NO smol HERE: run `ragguard fetch smol`")
    port = free_port()
    command = [SERVERS.python, Path(__file__).parent / "llama_cpp.py", weights, port]
    log = tmp_path_factory.mktemp("llama-cpp") / "log"
    address = f"http://127.0.0.1:{port}"
    with healthy_server(command, f"{address}/health", log, environment=os.environ, patience_s=60):
        yield f"{address}/v1"


@pytest.fixture(scope="session")
def litellm(llama_cpp, tmp_path_factory):
    """The address of LiteLLM's proxy before that llama.cpp; it wants LITELLM_KEY."""
    folder, port = tmp_path_factory.mktemp("litellm"), free_port()
    behind = {"model": "openai/smol", "api_base": llama_cpp, "api_key": "none"}
    models = {"model_list": [{"model_name": "smol", "litellm_params": behind}]}
    (folder / "config.yaml").write_text(json.dumps(models))
    proxy = SERVERS.home / "bin" / "litellm"
    command = [proxy, "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", port]
    environment = os.environ | {"LITELLM_MASTER_KEY": LITELLM_KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    address = f"http://127.0.0.1:{port}"
    health = f"{address}/health/liveliness"
    with healthy_server(command, health, folder / "log", environment=environment, patience_s=120):
        yield f"{address}/v1"


@pytest.fixture(scope="session")
def transformers_serve(tmp_path_factory):
    """The address of a `transformers serve` of nano, with the model, which it does not list."""
    folder, port = tmp_path_factory.mktemp("transformers"), free_port()
    write_checkpoint(folder / "nano")
    (folder / "cache" / "hub").mkdir(parents=True)
    command = [
        SERVERS.home / "bin" / "transformers", "serve", folder / "nano", "--host", "127.0.0.1", "--port", port,
        "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip
    environment = os.environ | {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    address = f"http://127.0.0.1:{port}"
    with healthy_server(
        command, f"{address}/health", folder / "log", environment=environment, patience_s=120
    ):
        yield f"{address}/v1#{folder / 'nano'}"
