"""The lowest version of OpenTelemetry that is supported, in an environment of its own: run this file to make it.

Lower ones know no events in log records, or lose them. Then its interpreter runs these very tests:
`make test-floors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv

FLOOR = CachedVenv(
    name="telemetry-floor",
    packages=(
        "opentelemetry-api==1.37.0",
        "opentelemetry-sdk==1.37.0",
        "opentelemetry-exporter-otlp-proto-http==1.37.0",
        "httpx>=0.27,<1",
        "numpy>=1.26",
        "rich>=13.7",
        "typer>=0.15",
        "pytest>=8.2",
        "pytest-asyncio>=0.24",
        "pytest-timeout>=2.3",
    ),
    check="import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http, pytest_asyncio, pytest_timeout",
)

if __name__ == "__main__":
    print(FLOOR.install())
