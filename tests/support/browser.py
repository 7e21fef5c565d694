"""Chromium, driven over its DevTools protocol: what a page did, and what stands in it."""

import base64
import json
import shutil
import subprocess
import time
from contextlib import contextmanager

from websockets.sync.client import connect

from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = REPOSITORY / ".slipway" / "node_modules" / "axe-core" / "axe.min.js"
"""Where `npm install --prefix .slipway axe-core` puts it."""
QUIET_S = 0.5
"""A page that has asked for nothing for so long is taken to be complete."""


@contextmanager
def page(folder):
    """A page of a browser of its own, which keeps its profile in `folder`."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1600,2400"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, path = until(lambda: _address(folder))
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _address(folder):
    """Port and path of the protocol, once the browser has written both."""
    file = folder / "DevToolsActivePort"
    lines = file.read_text().splitlines() if file.exists() else []
    return lines if len(lines) == 2 else None


class Page:
    """One tab. It keeps the dialogs that opened and the addresses that were requested."""

    def __init__(self, socket):
        self._socket, self._session, self._last_id = socket, None, 0
        self.dialogs, self.requested = [], []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, url):
        """Leave the page before, and load another one."""
        for each in ("about:blank", url):
            self._call("Page.navigate", url=each)

    def set_cookie(self, name, value, url):
        """Give the browser a cookie for the pages of that address."""
        self._call("Network.setCookie", name=name, value=value, url=url)

    def look(self, width, *, dark):
        """Show pages at that width in pixels, in a dark or a light theme."""
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=theme)

    def picture(self, file):
        """Write a picture of the whole page, as PNG."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def axe(self):
        """What axe-core finds wrong for people who use a keyboard or a screen reader: rule and element."""
        self.run(AXE.read_text() + ";0")
        return self.run(
            "axe.run().then(found => found.violations.flatMap(each => each.nodes.map(n => [each.id, n.html])))",
            waits=True,
        )

    def run(self, script, *, waits=False):
        """The value of a script in the page, or of its promise if it `waits`."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=waits)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, label):
        """Press the button of that label once it is there."""
        button = f"document.querySelector('[aria-label=\"{label}\"]')"
        self.wait_for(f"!!{button}")
        self.run(f"{button}.click()")

    def wait_for(self, condition):
        """Wait until a script is true in the page, then until the page asks for nothing more."""
        until(lambda: self.run(condition), said=lambda: self.run("document.body?.innerText"))
        asked = None
        while asked != len(self.requested):
            asked = len(self.requested)
            self._listen(QUIET_S)

    def _call(self, method, **parameters):
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = self._received(PATIENCE_S)
            if answer.get("id") == message["id"]:
                assert "result" in answer, answer
                return answer["result"]

    def _listen(self, seconds):
        until_s = time.monotonic() + seconds
        while (left := until_s - time.monotonic()) > 0:
            try:
                self._received(left)
            except TimeoutError:
                return

    def _received(self, timeout_s):
        """The next message; events that tell what the page did are kept."""
        message = json.loads(self._socket.recv(timeout_s))
        if message.get("method") == "Page.javascriptDialogOpening":
            self.dialogs.append(message["params"]["message"])
            close = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            self._socket.send(json.dumps({**close, "sessionId": self._session}))
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message
