"""A headless Chromium, driven over a pipe by the DevTools protocol: no driver, no network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_TIMEOUT_S = 60


class Browser:
    """One Chromium process; `page` opens a tab. Use as a context manager."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="xla-cost-chromium-")
        read_ours, write_theirs = os.pipe()
        read_theirs, write_ours = os.pipe()
        command = (
            f"exec {CHROMIUM} --headless=new --no-sandbox --disable-gpu --no-first-run "
            "--disable-extensions --disable-background-networking --remote-debugging-pipe "
            f"--user-data-dir={self.profile.name} 3<&{read_theirs} 4>&{write_theirs}"
        )
        self.process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(read_theirs, write_theirs),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_theirs)
        os.close(write_theirs)
        self._in, self._out = read_ours, write_ours
        self._buffer = b""
        self._next = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=_TIMEOUT_S)
        os.close(self._in)
        os.close(self._out)
        for _ in range(50):  # helper processes let go of the profile a moment later
            try:
                self.profile.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], _TIMEOUT_S)
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("chromium does not answer")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def page(self, path: Path, width: int = 1400, height: int = 1000, dark: bool = False) -> Page:
        return Page(self, path, width, height, dark)


class Page:
    """A tab with the report at `path`, drawn."""

    def __init__(self, browser: Browser, path: Path, width: int, height: int, dark: bool) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self._size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        browser.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")
        self.settle()

    def _size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def resize(self, width: int, height: int) -> None:
        """Another size of the window (below 600 a phone), drawn."""
        self._size(width, height)
        self.settle()
        self.settle()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + _TIMEOUT_S
        while not self.run(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"never true: {condition}")
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until two frames were drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def mouse(self, selector: str, kind: str = "mouseMoved", index: int = 0) -> None:
        """Move the real pointer to the middle of an element (scrolled into view)."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.settle()
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)
        self.settle()

    def click(self, selector: str, index: int = 0) -> None:
        self.mouse(selector, index=index)
        self.mouse(selector, "mousePressed", index)
        self.mouse(selector, "mouseReleased", index)

    def problems(self) -> list[str]:
        """Console errors and warnings, exceptions, and log entries, as texts."""
        found = []
        for event in self.browser.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"])[:400])
            elif method == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"])[:400])
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
