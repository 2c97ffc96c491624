"""Makes the environment with every instrumentation that ragguard works beside, once: `make test-foreign` runs it.

OpenLLMetry and LlamaIndex's own OpenTelemetry package want other versions of shared packages than the
tests' environment has, so they get one of their own; then its interpreter runs the tests of telemetry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv

FOREIGN = CachedVenv(
    name="foreign",
    packages=(
        "opentelemetry-instrumentation-langchain==0.62.4",
        "opentelemetry-instrumentation-llamaindex==0.62.4",
        "llama-index-llms-openai",  # which OpenLLMetry imports, whatever model is used
        "llama-index-observability-otel==0.7.0",
        "langfuse>=5,<6",
        "openinference-instrumentation-langchain>=0.1.60",
        "openinference-instrumentation-llama-index>=4.3",
        "langchain>=1.4,<2",
        "langgraph>=1.0",
        "llama-index-core>=0.14.18,<0.15",
        "llama-index-workflows>=2.17.1,!=2.24.0,<3",
        "httpx>=0.27,<1",
        "numpy>=1.26",
        "opentelemetry-exporter-otlp-proto-http>=1.37,<2",
        "rich>=13.7",
        "typer>=0.15",
        "pytest>=8.2",
        "pytest-asyncio>=0.24",
        "pytest-timeout>=2.3",
    ),
    check="import opentelemetry.instrumentation.langchain, opentelemetry.instrumentation.llamaindex, "
    "llama_index.observability.otel, openinference.instrumentation.llama_index, pytest_asyncio, pytest_timeout",
)


def foreign(test: Callable[..., object]) -> Callable[..., object]:
    """A test that needs this environment."""
    here = FOREIGN.home == Path(sys.prefix)
    skipped = pytest.mark.skipif(not here, reason="not installed here: run `make test-foreign`")
    return pytest.mark.foreign(skipped(test))


if __name__ == "__main__":
    print(FOREIGN.install())
