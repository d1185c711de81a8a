"""A real browser for tests: a page dumped as it is in the end, or driven with real keys and a real mouse.

Driving goes through DevTools messages over a pipe: Chromium needs no other program for it, and no port.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "chromium is not on PATH: apt-get install chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_KEYS = {
    "Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " "), "ArrowLeft": (37, ""), "ArrowRight": (39, ""),
    "ArrowDown": (40, ""), "Home": (36, ""), "End": (35, ""),
}  # fmt: skip
_WAIT_S = 60.0


def browse(path: Path, folder: Path, *more: str) -> tuple[str, str]:
    """Open a file in a browser of its own; returns what that printed and what it logged."""
    logged = ("--enable-logging=stderr", "--virtual-time-budget=20000")
    for attempt in ("first", "second", "third"):
        own = f"--user-data-dir={folder / attempt}"
        command = [str(BROWSER), *FLAGS, *logged, own, *more, path.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        except subprocess.TimeoutExpired:
            continue  # Chromium itself now and then does not end, its work done: no fault of the page
        return done.stdout, done.stderr
    raise AssertionError("Chromium did not end in three attempts")


def console(log: str) -> list[str]:
    """The lines of a browser's log that pages wrote."""
    return [line for line in log.splitlines() if "CONSOLE" in line]


def asked_for(log: Path) -> set[str]:
    """What pages asked for: Chromium logs their origin as "null" here, and another for its own services."""
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return {event["url"] for event in events if event.get("initiator") == "null"}


class Browser:
    """A running Chromium; pages are opened in it one after another."""

    def __init__(self, folder: Path) -> None:
        """Start it with an empty profile in ``folder``."""
        self._folder, self._number, self._buffer = folder, 0, b""
        self.events: list[dict[str, Any]] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # Chromium reads from 3 and writes to 4: whatever stands there now must not be in the way.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        for end in (theirs_in, theirs_out):
            os.close(end)
        redirected = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
        command = [str(BROWSER), *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
        self._process = subprocess.Popen(
            ["bash", "-c", redirected, "bash", *command],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in ends:
            os.close(end)

    def __enter__(self) -> Browser:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the browser."""
        try:
            self.ask("Browser.close")
        finally:
            os.close(self._out)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            os.close(self._in)

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command and its result; what happened meanwhile is added to ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, **settings: Any) -> Page:
        """A page in a tab of its own; see `Page` for the settings."""
        return Page(self, path, **settings)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _WAIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "Chromium has ended"
            self._buffer += read
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


class Page:
    """One tab: what it logs and asks the network for, keys, mouse, pictures."""

    def __init__(
        self,
        browser: Browser,
        path: Path,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        at: str = "",
        scripts: bool = True,
        wait: str = "document.documentElement?.dataset.charts === 'drawn'",
    ) -> None:
        """Open ``path``, at the link ``at`` in it, and wait until its charts are drawn.

        ``scheme``: light or dark, as the system says; ``scripts``: the page's own may run.
        """
        self._browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        self._session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self.resize(width, height)
        self.scheme(scheme)
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask("Page.navigate", url=path.as_uri() + at)
        self.until(wait)

    def __enter__(self) -> Page:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the tab; what it said stays known."""
        self._browser.ask("Target.closeTarget", targetId=self._target)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command to this tab."""
        return self._browser.ask(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size, in CSS pixels; under 500 it is a phone."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip

    def scheme(self, name: str, media: str = "", motion: str = "no-preference") -> None:
        """What the system says of colours and motion; ``media="print"`` shows it as it prints."""
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + _WAIT_S
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press and release keys, one after another; ``Shift+Tab`` with that held."""
        for key in keys:
            held, name = (8, key.removeprefix("Shift+")) if key.startswith("Shift+") else (0, key)
            code, text = _KEYS[name]
            about = {"key": " " if name == "Space" else name, "code": name, "windowsVirtualKeyCode": code}
            self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, modifiers=held, **about)
            self.ask("Input.dispatchKeyEvent", type="keyUp", modifiers=held, **about)

    def focus(self, selector: str) -> None:
        """Put the focus on an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")

    def hover(self, expression: str) -> None:
        """Move the mouse to the middle of the element that an expression gives."""
        x, y = self._middle(expression)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def saves_into(self, folder: Path) -> None:
        """Let what is saved arrive in a folder."""
        self._browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def click(self, expression: str) -> None:
        """Click into the middle of the element that an expression gives."""
        x, y = self._middle(expression)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            pressed: dict[str, Any] = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def _middle(self, expression: str) -> tuple[float, float]:
        found = self.run(
            f"(() => {{ const one = {expression}; one.scrollIntoView({{block: 'center'}});"
            " const box = one.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        return float(found[0]), float(found[1])

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is seen, or all of the page, as PNG."""
        found = self.ask(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole)
        )
        _write(path, found["data"])

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def pdf(self, path: Path) -> None:
        """The page as it prints."""
        _write(path, self.ask("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])

    @property
    def said(self) -> list[str]:
        """What the console holds, uncaught errors included."""
        found = []
        for event in self._own():
            about = event["params"]
            if event["method"] == "Runtime.consoleAPICalled":
                found.append(" ".join(str(one.get("value", one)) for one in about["args"]))
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded":
                found.append(about["entry"]["text"])
        return found

    @property
    def asked_for(self) -> list[str]:
        """Every address that the page asked for, its own and those of its own data left out."""
        urls = [
            event["params"]["request"]["url"]
            for event in self._own()
            if event["method"] == "Network.requestWillBeSent" and event["params"]["type"] != "Document"
        ]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]

    def take_said(self) -> list[str]:
        """What the console holds, which is forgotten."""
        said = self.said
        self._browser.events[:] = [
            one for one in self._browser.events if one.get("sessionId") != self._session
        ]
        return said

    def _own(self) -> list[dict[str, Any]]:
        return [one for one in self._browser.events if one.get("sessionId") == self._session]


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(content))
