"""A recorder whose events one test has."""

import pytest

from ragguard.capture.recorder import Recorder


@pytest.fixture
def recorder(captured):
    return Recorder(captured)
