"""A real Phoenix on loopback, started once for the whole session and stopped with it."""

from __future__ import annotations

import pytest
from support.environments import PHOENIX
from support.phoenix_server import serve


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory):
    """The address of a running Phoenix."""
    if not PHOENIX.ready():
        pytest.skip("NO Phoenix HERE: run `make test-phoenix`")
    with serve(tmp_path_factory.mktemp("phoenix")) as url:
        yield url
