"""Marks tests that need the environment with every instrumentation that ragguard works beside."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.environments import FOREIGN


def foreign(test: Callable[..., object]) -> Callable[..., object]:
    """Marks a test that runs in that environment alone."""
    here = FOREIGN.home == Path(sys.prefix)
    skipped = pytest.mark.skipif(not here, reason="not installed here: run `make test-foreign`")
    return pytest.mark.foreign(skipped(test))
