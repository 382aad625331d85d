"""Chromium without a window, told what to do through a pipe: no driver, no port, no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60  # seconds that one answer may take
_MODIFIERS = {"Shift": 8, "Control": 2}


def find_browser() -> str | None:
    """The path of a browser: what CHROMIUM names, or one that is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. What it writes to its console, and errors that nobody caught, are in `complaints`."""

    def __init__(self, ask: Any, events: list[dict[str, Any]]) -> None:
        self._ask, self._events = ask, events
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, page: Path, dark: bool = False) -> None:
        """Open a file and wait until it is drawn."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        self._ask("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE
        while not self.run("document.readyState === 'complete' && Boolean(document.documentElement.dataset.ready)"):
            self._listen()
            assert not self.complaints, self.complaints
            assert time.monotonic() < deadline, "the page does not get ready"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        self._listen()
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str, count: int = 1) -> None:
        """Click with the mouse in the middle of an element, which has to be what is seen there."""
        found = f"document.querySelector({json.dumps(selector)})"
        where = self.run(
            f"(() => {{ const box = {found}?.getBoundingClientRect(); if (!box) return null;"
            "const x = box.x + box.width / 2, y = box.y + box.height / 2, top = document.elementFromPoint(x, y);"
            f"return [x, y, {found}.contains(top), String(top?.outerHTML).slice(0, 200)]; }})()"
        )
        assert where is not None, f"there is no {selector}"
        x, y, is_seen, covering = where
        assert is_seen, f"{selector} at ({x}, {y}) is covered by {covering}"
        for i in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=i)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag with the mouse."""
        self._ask("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", clickCount=1)
        for x, y in ((sum(pair) / 2 for pair in zip(start, end, strict=True)), end):
            self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self._ask("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)

    def wheel(self, x: float, y: float, by: float) -> None:
        """Turn the wheel; the page has answered when this returns."""
        self._ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def write(self, text: str) -> None:
        """Write into what has the focus."""
        self._ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key: a character, or a name such as Enter."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the window, in pixels."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def _listen(self) -> None:
        for event in self._events:
            method, said = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled":
                self.complaints.append(f"console.{said['type']}: {said['args']}")
            elif method == "Runtime.exceptionThrown":
                details = said["exceptionDetails"]
                self.complaints.append(str(details.get("exception", {}).get("description") or details))
            elif method == "Log.entryAdded":
                self.complaints.append(f"{said['entry']['source']}: {said['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
        self._events.clear()


# The browser reads descriptor 3 and writes descriptor 4.
_START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@contextmanager
def browsing(width: int = 1400, height: int = 900) -> Iterator[Browser]:
    """Start a browser with one empty page, and end it."""
    path = find_browser()
    assert path is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += ["--disable-background-networking", "--remote-debugging-pipe", "--hide-scrollbars", "about:blank"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [sys.executable, "-c", _START, *map(str, theirs), path, f"--user-data-dir={profile}", *options]
        process = subprocess.Popen(command, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (*theirs, theirs_in, theirs_out):
            os.close(end)
        pipe = _Pipe(ours_in, ours_out)
        try:
            page = pipe.ask("Target.createTarget", url="about:blank")["targetId"]
            session = pipe.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]

            def ask(method: str, **params: Any) -> Any:
                return pipe.ask(method, session, **params)

            for domain in ("Page", "Runtime", "Log", "Network"):
                ask(f"{domain}.enable")
            browser = Browser(ask, pipe.events)
            browser.size(width, height)
            yield browser
        finally:
            process.terminate()
            process.wait(10)
            pipe.close()


class _Pipe:
    """Messages in JSON, each ended by a zero byte."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._rest = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._sink, text) :]
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._source, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def close(self) -> None:
        os.close(self._source)
        os.close(self._sink)
