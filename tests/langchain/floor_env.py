"""The lowest versions of LangChain that are supported, in an environment of their own: run this file to make it.

Then its interpreter runs these very tests: `make test-floors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv

FLOOR = CachedVenv(
    name="langchain-floor",
    packages=(
        "langchain-core==1.7.2",
        "langchain==1.4.0",
        "langchain-classic==1.0.0",
        "langchain-tests==1.1.0",
        "langchain-text-splitters==1.0.0",
        "langgraph==1.2.11",
        "openinference-instrumentation-langchain>=0.1.60",
        "httpx>=0.27,<1",
        "numpy>=1.26",
        "opentelemetry-api>=1.37,<2",
        "opentelemetry-sdk>=1.37,<2",
        "opentelemetry-exporter-otlp-proto-http>=1.37,<2",
        "rich>=13.7",
        "typer>=0.15",
        "hypothesis>=6.100",
        "pytest>=8.2",
        "pytest-asyncio>=0.24",
        "pytest-timeout>=2.3",
    ),
    check="import langchain.agents, langchain_classic.retrievers, langchain_tests.integration_tests, numpy, httpx",
)

if __name__ == "__main__":
    print(FLOOR.install())
