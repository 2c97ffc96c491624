"""Takes the pictures of the report that README and docs show: `make pictures`. Needs Chromium.

The page is the demonstration's; the run that is shown is the one of which the guard dropped most.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.browser import chromium

HERE = Path(__file__).parent
SIZES = {"desktop": (1280, 1500), "phone": (390, 844)}
CHOOSE = """filter.value = 'dropped'; filter.dispatchEvent(new Event('input'));
const dropped = run => Number(/(\\d+) dropped/.exec(run.textContent)[1]);
[...runs.children].sort((a, b) => dropped(b) - dropped(a))[0].click()"""


def main() -> None:
    """One picture a size and colour scheme."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        demo = [sys.executable, "-c", "from ragguard.cli import main; main()", "demo", "--out", folder]
        subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
        for name, (width, height) in SIZES.items():
            for dark in (False, True):
                page = browser.open((Path(folder) / "report.html").as_uri(), width, height, dark=dark)
                page.value(CHOOSE)
                page.value(
                    "document.querySelector('#run').scrollIntoView()" if name == "phone" else "scrollTo(0, 0)"
                )
                path = HERE / f"report-{name}{'-dark' if dark else ''}.png"
                page.picture(path)
                print(path.name, f"{path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
