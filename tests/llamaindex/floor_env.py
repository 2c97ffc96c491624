"""The lowest versions of LlamaIndex that are supported, in an environment of their own: run this file to make it.

Then its interpreter runs these very tests: `make test-floors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv

FLOOR = CachedVenv(
    name="llamaindex-floor",
    packages=(
        "llama-index-core==0.14.18",
        "llama-index-workflows==2.17.1",
        "openinference-instrumentation-llama-index>=4.3",
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
    check="import llama_index.core, workflows, hypothesis, pytest_asyncio, pytest_timeout, numpy, httpx",
)

if __name__ == "__main__":
    print(FLOOR.install())
