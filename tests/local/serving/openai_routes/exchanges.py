"""What a client and a server say to each other over HTTP: a proxy that keeps it, and what of it a person reads."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TIMEOUT_S = 120
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "expect"}


@dataclass(frozen=True)
class Exchange:
    """One request and its answer; `document` is the request's JSON, None where it has none."""

    method: str
    path: str
    document: dict | None
    status: int
    answer: str

    @property
    def events(self):
        """The data of each event of a streamed answer; empty where the answer came whole."""
        if not self.answer.startswith(("event:", "data:")):
            return []
        return [line[5:].strip() for line in self.answer.splitlines() if line.startswith("data:")]

    @property
    def said(self):
        """The answer in one line."""
        if not self.events:
            return " ".join(_texts(json.loads(self.answer))) if self.answer else ""
        return "".join(text for each in self.events if each != "[DONE]" for text in _texts_of_event(json.loads(each)))


def _texts(document) -> Iterator[str]:
    """What a whole answer of any of the APIs says: texts, calls, errors, names of models."""
    if document.get("error"):
        yield f"{document['error']['type']}: {document['error']['message']}"
    for choice in document.get("choices", ()):
        message = choice.get("message", choice)
        yield from filter(None, (message.get("content"), choice.get("text")))
        yield from (_call(each["function"]) for each in message.get("tool_calls") or ())
    for item in [*document.get("output", ()), *(document.get("content") or ())]:
        yield from (each["text"] for each in item.get("content", ()) if "text" in each)
        yield from filter(None, [item.get("text")])
        if "name" in item:
            yield _call({"arguments": json.dumps(item.get("input", {})), **item})
    yield from (each["id"] for each in document.get("data", ()))
    yield from (f"{document[name]} tokens" for name in ["input_tokens"] if name in document)


def _texts_of_event(event) -> Iterator[str]:
    for choice in event.get("choices", ()):
        delta = choice.get("delta", choice)
        yield from filter(None, (delta.get("content"), choice.get("text")))
        yield from (_call(each["function"]) for each in delta.get("tool_calls") or ())
    if event.get("type") == "response.function_call_arguments.done":
        yield _call(event)
    elif event.get("type") == "response.output_text.delta":
        yield event["delta"]
    elif event.get("type") == "content_block_start" and "name" in event["content_block"]:
        yield event["content_block"]["name"]
    elif event.get("type") == "content_block_delta":
        yield event["delta"].get("text") or f"({event['delta'].get('partial_json', '')})"


def _call(function):
    return f"{function['name']}({function['arguments']})"


class Recorder:
    """A proxy on a port of its own, before the server at `url`. An answer is passed on when it is complete."""

    def __init__(self, url):
        self.exchanges, target = [], urlsplit(url)
        kept = self.exchanges

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                connection = http.client.HTTPConnection(target.hostname, target.port, timeout=TIMEOUT_S)
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                answer = response.read()
                connection.close()
                document = json.loads(body) if body else None
                kept.append(Exchange(self.command, self.path, document, response.status, answer.decode()))
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = pass_on  # noqa: N815 - names of BaseHTTPRequestHandler

            def log_message(self, *_):
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
