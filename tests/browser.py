"""A headless Chromium, driven by its DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser process. Pages are made by :meth:`page`."""

    def __init__(self, width: int = 1440, height: int = 900) -> None:
        self.home = tempfile.mkdtemp(prefix="weft-browser-")
        read_end, self.out = os.pipe()
        self.inp, write_end = os.pipe()
        # Chromium reads its commands from descriptor 3 and answers on 4.
        arguments = [
            *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
            *("--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.home}"),
            *(f"--window-size={width},{height}", "about:blank"),
        ]
        command = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, str(find()), *arguments],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self.size = (width, height)
        self.buffer = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer; events are kept for later."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.inp], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            read = os.read(self.inp, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def page(self, url: str, dark: bool = False) -> Page:
        """Open an address and wait until it has loaded."""
        return Page(self, url, dark)

    def close(self) -> None:
        """End the browser and remove what it wrote."""
        for end in (self.out, self.inp):
            os.close(end)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        shutil.rmtree(self.home, ignore_errors=True)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, url: str, dark: bool) -> None:
        self.browser = browser
        self.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        width, height = browser.size
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        # Animations would make what is seen depend on the moment.
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.go(url)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask this tab for something."""
        return self.browser.send(method, self.session, **params)

    def go(self, url: str) -> None:
        """Load an address."""
        failed = self.send("Page.navigate", url=url).get("errorText")
        if failed:
            raise RuntimeError(f"{url}: {failed}")
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> Any:
        """Wait until an expression is true; gives its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {script}; complaints: {self.complaints()}")
            time.sleep(0.05)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """One event of the mouse."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str, shift: bool = False) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        common = {"key": key, "modifiers": 8 if shift else 0}
        common["windowsVirtualKeyCode"] = codes.get(key, ord(key[0].upper()))
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Errors and warnings that the page has caused so far."""
        self.run("1")
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                if params["type"] in ("error", "warning", "assert"):
                    found.append(str([a.get("value") for a in params["args"]]))
            elif event["method"] == "Log.entryAdded":
                if params["entry"]["level"] in ("error", "warning"):
                    found.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        return found

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        self.run("1")
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("sessionId") == self.session
            and event["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path) -> None:
        """A picture of what is in the window."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        """Close the tab."""
        self.browser.send("Target.closeTarget", targetId=self.target)


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """A browser for the length of a block."""
    browser = Browser()
    try:
        yield browser
    finally:
        browser.close()
