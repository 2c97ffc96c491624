"""Every Python block of the README and the docs runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block, tmp_path):
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", block],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_blocks():
    assert BLOCKS
