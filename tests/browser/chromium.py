"""A headless Chromium, driven through its debugging pipe: no driver, no port, no further package."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import Any, Self

ANSWER_S = 90.0
WAIT_S = 60.0
_OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--mute-audio",
)  # fmt: skip
# The browser talks on its descriptors 3 and 4.
_WITH_PIPES = 'in=$1 out=$2; shift 2; exec "$@" 3<&$in 4>&$out'
_POLL = """new Promise((done) => {
  const until = Date.now() + %d;
  (function look() {
    let found = null;
    try { found = (%s); } catch (error) { found = null; }
    if (found) done(found); else if (Date.now() > until) done(null); else setTimeout(look, 25);
  })();
})"""


def found() -> str | None:
    """Name a Chromium that runs; what a package manager left half installed does not."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        program = shutil.which(name)
        if program and not subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
            return program
    return None


PROGRAM = found()


class Navigated(AssertionError):
    """The page left while it was asked something."""


class Chromium:
    """One browser for the life of a `with`; each tab has a cookie jar of its own."""

    def __enter__(self) -> Self:
        """Start it with an empty profile."""
        assert PROGRAM is not None
        self._profile = tempfile.mkdtemp(prefix="penstock-browser-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        sandbox = ("--no-sandbox",) if os.getuid() == 0 else ()
        command = [PROGRAM, *_OPTIONS, *sandbox, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", _WITH_PIPES, "-", str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""
        self.tabs: dict[str, Tab] = {}
        self._targets: list[str] = []
        return self

    def __exit__(self, *_exc: object) -> None:
        """End it and remove the profile."""
        try:
            self.call("Browser.close")
            self._process.wait(ANSWER_S)
        finally:
            self._process.kill()
            self._process.wait(ANSWER_S)
            os.close(self._to)
            os.close(self._from)
            shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile goes to the tabs."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise (Navigated if "navigated" in answer["error"]["message"] else AssertionError)(answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            if answer.get("sessionId") in self.tabs:
                self.tabs[answer["sessionId"]].events.append(answer)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser has ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def close_tabs(self) -> None:
        """Close every tab: a node has a bounded number of viewers."""
        for target in self._targets:
            self.call("Target.closeTarget", targetId=target)
        self._targets.clear()
        self.tabs.clear()

    def tab(self, *, width: int = 1200, dark: bool = False) -> Tab:
        """Open a tab with no cookies."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self.tabs[session] = Tab(self, session)
        self._targets.append(target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.look(width=width, dark=dark)
        return tab


class Tab:
    """One page, as a user meets it."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self._browser.call(method, self._session, **params)

    def look(self, *, width: int, dark: bool) -> None:
        """Set the width and the colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def open(self, url: str) -> None:
        """Go there, and return when the page before is gone: what is asked next is asked of the new one."""
        self.js("window.before = true")
        self.call("Page.navigate", url=url)
        self.wait("window.before === undefined")

    def js(self, expression: str) -> Any:
        """Evaluate in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true in the page, or in the one that follows it, and return its value."""
        try:
            found = self.js(_POLL % (WAIT_S * 1000, expression))
        except Navigated:
            return self.wait(expression)
        assert found, f"never came true: {expression}\nthe page says:\n{self.text()}"
        return found

    def wait_text(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})")

    def text(self) -> str:
        """Return what can be read on the page."""
        return str(self.js("document.body ? document.body.innerText : ''"))

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}.get(key) or (ord(key.upper()), key)
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def type(self, text: str) -> None:
        """Type into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def requested(self) -> list[str]:
        """List the addresses the page asked for, in order."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def loaded(self) -> dict[str, int]:
        """Tell how many bytes came for each address, as the page reads them: after decompression."""
        events = [(e["method"], e["params"]) for e in self.events]
        urls = {
            each["requestId"]: each["request"]["url"] for name, each in events if name == "Network.requestWillBeSent"
        }
        sizes = dict.fromkeys(urls.values(), 0)
        for name, each in events:
            if name == "Network.dataReceived":
                sizes[urls[each["requestId"]]] += each["dataLength"]
        return sizes

    def complaints(self) -> list[str]:
        """List what the console shows as an error: exceptions, refused resources, broken policies."""
        found = [
            e["params"]["exceptionDetails"]["text"] for e in self.events if e["method"] == "Runtime.exceptionThrown"
        ]
        entries = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        found += [entry["text"] for entry in entries if entry["level"] in ("error", "warning")]
        printed = [e["params"] for e in self.events if e["method"] == "Runtime.consoleAPICalled"]
        return found + [str(each["args"]) for each in printed if each["type"] in ("error", "warning", "assert")]
