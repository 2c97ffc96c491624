"""Makes an environment of the newest Python that this machine has, or of a given one: `make test-newest` runs it.

The suite runs on the oldest Python. What depends on the version shows in the tests of the store, the service, the
guard and the faults of both frameworks: when connections are closed and collected, what an event loop does at its end.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv
from support.interpreters import newest, version

PACKAGES = (
    "langchain>=1.4,<2",
    "langchain-classic>=1.0",
    "langchain-tests>=1.1",
    "langgraph>=1.0",
    "llama-index-core>=0.14.18,<0.15",
    "llama-index-workflows>=2.17.1,!=2.24.0,<3",
    "openinference-instrumentation-langchain>=0.1.60",
    "openinference-instrumentation-llama-index>=4.3",
    "fastapi>=0.110",
    "httpx>=0.27,<1",
    "numpy>=1.26",
    "opentelemetry-exporter-otlp-proto-http>=1.37,<2",
    "pyarrow>=15",
    "rich>=13.7",
    "typer>=0.15",
    "uvicorn>=0.30",
    "uvloop>=0.20",
    "hypothesis>=6.100",
    "pytest>=8.2",
    "pytest-asyncio>=0.24",
    "pytest-timeout>=2.3",
)
CHECK = "import langchain.agents, langgraph, llama_index.core, hypothesis, pytest_asyncio, pytest_timeout"


def newest_env(interpreter: Path) -> CachedVenv:
    """The environment, named after the version, so that a newer Python gets one of its own."""
    numbers = ".".join(map(str, version(interpreter) or ()))
    return CachedVenv(f"newest-{numbers}", PACKAGES, CHECK, interpreter=interpreter)


if __name__ == "__main__":
    print(newest_env(Path(sys.argv[1]) if sys.argv[1:] else newest()).install())
