"""A real headless Chromium through its debugging pipe: pages opened, timed, asked, photographed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.polling import eventually

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
_WATCH = """
addEventListener("securitypolicyviolation", (event) => (window.violations ??= []).push(event.violatedDirective));
new MutationObserver(() => {
  if (document.documentElement?.dataset.ready && !window.painted)
    requestAnimationFrame(() => requestAnimationFrame(() => { window.painted ??= performance.now(); }));
}).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-ready"] });
"""


@dataclass
class Page:
    """A tab of the browser."""

    browser: Browser
    session: str

    def call(self, method: str, **values: Any) -> Any:
        """Sends one command of the DevTools protocol to the tab; returns its result."""
        return self.browser.call(method, self.session, **values)

    def value(self, script: str) -> Any:
        """Evaluates a JavaScript expression in the tab; returns its value."""
        got = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(str(got["exceptionDetails"])[:400])
        return got["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> Any:
        """Polls an expression until it is true."""
        return eventually(lambda: self.value(script), seconds, every=0.02, found=lambda: script)

    def press(self, key: str) -> None:
        """Presses and releases one key."""
        code = {"ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "Enter": 13, "End": 35, "Home": 36}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        """Takes a screenshot of the tab; returns it as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@dataclass
class Browser:
    """A browser that was started for this, with a profile of its own."""

    process: subprocess.Popen[bytes]
    to: int
    fro: int
    _next: int = 0
    _rest: bytes = b""
    events: list[Any] = field(default_factory=list)

    def call(self, method: str, session: str = "", **values: Any) -> Any:
        """Sends one command of the DevTools protocol; returns its result."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": values}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(
        self,
        url: str,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        media: str = "screen",
        until: str = "window.painted > 0",
    ) -> Page:
        """A page in a tab of that size, once it is drawn to its end, or what `until` says."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        phone = width < 600
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        page.call("Page.navigate", url=url)
        page.wait(until)
        return page

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            got = os.read(self.fro, 1 << 20)
            if not got:
                raise RuntimeError("the browser is gone")
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser while it is needed."""
    assert CHROMIUM, "chromium is not installed"
    ours, theirs = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = " ".join([f'exec "{CHROMIUM}"', *_FLAGS, f'--user-data-dir="{profile}"'])
        process = subprocess.Popen(
            ["bash", "-c", f"{command} 3<&{ours[0]} 4>&{theirs[1]}"],
            pass_fds=(ours[0], theirs[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        try:
            yield Browser(process, ours[1], theirs[0])
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)
            os.close(ours[1])
            os.close(theirs[0])


def lies_apart(page: Page, width: int, parts: Sequence[str], places: Sequence[int] = (0,)) -> None:
    """Holds a page to its width, to texts without tooltips, and to parts that lie apart wherever it is scrolled to."""
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("document.querySelectorAll('[title]').length") == 0
    for scrolled in places:
        boxes = page.value(
            f"scrollTo(0, {scrolled}), {json.dumps(parts)}.flatMap((part) => [...document.querySelectorAll(part)])"
            ".map((part) => {"
            "const box = part.getBoundingClientRect();"
            "return [part.id || part.className || part.tagName, box.left, box.top, box.right, box.bottom]; })"
        )
        assert len(boxes) >= len(parts)
        for place, (name, left, top, right, bottom) in enumerate(boxes):
            for other, *box in boxes[place + 1 :]:
                apart = right <= box[0] + 1 or box[2] <= left + 1 or bottom <= box[1] + 1 or box[3] <= top + 1
                assert apart, (name, other, scrolled)
