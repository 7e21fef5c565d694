"""Stands between the command and a server of tests/fakes, and answers one request wrongly, the same for each seed.

The true answer comes from the server behind it, so that a wrong one is right everywhere but in one place.
"""

import contextlib
import gzip
import http.client
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.waiting import PATIENCE_S

EVENT = b"data: "
MARK = "@@wrong@@"
DEEP = 5_000
BOMB = gzip.compress(b'{"a": "' + b"x" * (200 << 20) + b'"}', 1)
TERMINAL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\x9b1A\r"
"""Sets the clipboard, clears the screen, reverses the text, moves up a line and to its beginning."""

VALUES = [
    "null", "true", "0", "-1", "1.5", "1" + "0" * 400, "9" * 6000, "1e999", "NaN", "Infinity", '""', '"x"', '"\\ud800"', '"\\u0000"',
    "[]", "{}", "[1]", "[null]", '{"a": null}', "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP,
    json.dumps("x" * 200_000), json.dumps(TERMINAL), json.dumps("[/bold][link=x]"), '"2026-13-45T99:99:99Z"', '"2026-01-01T00:00:00"',
]  # fmt: skip
"""JSON in the place of a value, valid or not."""

WHOLE = {
    "html": (200, b"<html>\x1b[2J</html>", "text/html"),
    "bomb": (200, BOMB),
    "not utf-8": (200, b'{"a": "\xff\xfe"}'),
    "empty": (200, b""),
    "500": (500, b"{}"),
    "304": (304, b""),
}
TRANSPORTS = ["endless", "drip", "slow headers", "many headers", "cut", "closed", "redirect", *WHOLE]
SILENT = "silent"


class HostileProxy:
    """Forwards to `port`; the answer number `at` is wrong. A context manager. `wrong`: how the first answer is."""

    def __init__(self, port, seed, wrong=None):
        self.port, self.random = port, random.Random(seed)  # noqa: S311
        self.at = self.random.choice((0, 0, 1, 1, 2, 3, 4, 6))
        self.wrong = self.random.choice(TRANSPORTS) if self.random.random() < 0.3 else "value"
        if wrong:
            self.at, self.wrong = 0, wrong
        self.answers, self.what = 0, "nothing"
        self.ended = threading.Event()

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def host(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def changed(self, body):
        """The body with one value of it replaced, removed, or with another whole document in its place."""
        events = body.split(b"\n\n") if body.startswith(EVENT) else [body]
        number = self.random.randrange(len(events))
        prefix = EVENT if events[number].startswith(EVENT) else b""
        with contextlib.suppress(ValueError):
            document = json.loads(events[number].removeprefix(EVENT))
            events[number] = prefix + self._changed(document)
        return b"\n\n".join(events)

    def _changed(self, document):
        value = self.random.choice(VALUES)
        places = list(_places(document))
        if not places or self.random.random() < 0.2:
            self.what = f"the document is {value[:40]}"
            return value.encode()
        holder, key = self.random.choice(places)
        removed = isinstance(holder, dict) and self.random.random() < 0.2
        self.what = f"{key!r} is {'gone' if removed else value[:40]}"
        if removed:
            del holder[key]
        else:
            holder[key] = MARK
        return json.dumps(document).replace(f'"{MARK}"', value).encode()


def _places(value):
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(entries):
        yield value, key
        yield from _places(item)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: HostileProxy

    def _serve(self):
        proxy = self.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
        connection.request(self.command, self.path, body or None, headers)
        true = connection.getresponse()
        data = true.read()
        connection.close()
        number, proxy.answers = proxy.answers, proxy.answers + 1
        wrong = proxy.wrong if number >= proxy.at else None
        if wrong and wrong != "value":
            proxy.what = wrong
            with contextlib.suppress(OSError):
                self._transport(wrong, data)
            self.close_connection = True
            return
        self._send(true.status, proxy.changed(data) if wrong else data, true.getheader("Content-Type"))

    do_GET = do_POST = do_PATCH = _serve  # noqa: N815 - names of http.server

    def _send(self, status, data, content_type="application/json", **headers):
        if data == BOMB:
            headers["Content_Encoding"] = "gzip"
        self.send_response(status)
        self.send_header("Content-Type", content_type or "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _transport(self, wrong, data):
        """Send what is wrong in another way than JSON can be."""
        json_type = b"Content-Type: application/json\r\n"
        match wrong:
            case "endless":
                self._forever(json_type, b"x" * 65536, 0)
            case "drip":
                self._forever(json_type, b" ", 0.2)
            case "slow headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not self.proxy.ended.wait(0.2):
                    self.wfile.write(b"A: b\r\n")
            case "silent":
                self.proxy.ended.wait()
            case "many headers":
                self._head(b"".join(b"A%d: b\r\n" % number for number in range(5000)))
            case "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + data[:5])
            case "redirect":
                self._send(302, b"", Location=self.path)
            case _ if wrong in WHOLE:
                self._send(*WHOLE[wrong])

    def _forever(self, headers, data, every_s):
        self._head(headers)
        while not self.proxy.ended.wait(every_s):
            self.wfile.write(data)

    def _head(self, headers):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + headers + b"Connection: close\r\n\r\n")

    def handle(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            super().handle()

    def log_message(self, *_):
        pass
