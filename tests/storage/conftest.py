"""A store in a file, and one in memory."""

import pytest

from ragguard.storage.sqlite.store import Store


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    opened = Store(tmp_path / "s.db" if request.param == "disk" else None)
    yield opened
    opened.close()
