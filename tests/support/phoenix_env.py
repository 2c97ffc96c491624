"""Makes the environment in which a real Phoenix runs, once. `make test-phoenix` runs this file."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_venv import CachedVenv, UnavailableError

PHOENIX = CachedVenv("phoenix", ("arize-phoenix==20.26.1",), "import phoenix.server.main")

if __name__ == "__main__":
    try:
        print(f"Phoenix: {PHOENIX.install()}")
    except UnavailableError as reason:
        print(f"\n*** NO Phoenix HERE: its tests will be skipped ***\n{reason}\n", file=sys.stderr)
        sys.exit(1)
