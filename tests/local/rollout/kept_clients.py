"""Clients that keep their connections to a Service: HTTP and gRPC, whole answers and streams.

They are as plain as clients get: no retry, and no look at a connection before it is used. A client that is told that a
connection closes (Connection: close, GOAWAY) opens another, as its library does; every exception that reaches it is a
failed request.
"""

import functools
import http.client
import json
import queue
import time

import numpy as np
from tritonclient import grpc

from tests.local.rollout.in_threads import InThreads
from tests.support.waiting import until

TIMEOUT_S = 60
PAUSE_S = 0.1


class HttpKept:
    """http.client over one connection. It notices a closed connection only by failing."""

    def __init__(self, address):
        self._connection = http.client.HTTPConnection(address.host, address.ports["http"], timeout=TIMEOUT_S)

    def ask(self, text="?"):
        status, body = self._post("/v2/models/demo/generate", text)
        assert status == 200, body
        return json.loads(body)["text_output"]

    def close(self):
        self._connection.close()

    def _post(self, path, text):
        return self._exchange(path, {"text_input": text})

    def _exchange(self, path, body):
        self._connection.request("POST", path, json.dumps(body))
        response = self._connection.getresponse()
        return response.status, response.read()


class HttpStreamKept(HttpKept):
    """Server-sent events, one answer after the other over one connection."""

    def ask(self, text="?"):
        status, body = self._post("/v2/models/demo/generate_stream", text)
        assert status == 200, body
        answers = {json.loads(line[6:])["text_output"] for line in body.splitlines() if line.startswith(b"data: ")}
        assert len(answers) == 1, body
        return answers.pop()


class OpenAiKept(HttpKept):
    """OpenAI's chat route, streamed, one answer after the other over one connection."""

    def ask(self, text="?"):
        body = {"model": "demo", "messages": [{"role": "user", "content": text}], "stream": True}
        status, body = self._exchange("/v1/chat/completions", body)
        assert status == 200, body
        *events, done = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
        assert done == b"[DONE]", body
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events]
        answers = {delta["content"] for delta in deltas if delta.get("content")}
        assert len(answers) == 1, body
        return answers.pop()


class GrpcKept:
    """tritonclient over one channel."""

    def __init__(self, address):
        self._client = grpc.InferenceServerClient(f"{address.host}:{address.ports['grpc']}")

    def ask(self, text="?"):
        return text_of(self._client.infer("demo", inputs(text), client_timeout=TIMEOUT_S))

    def close(self):
        self._client.close()


class GrpcStreamKept(GrpcKept):
    """One stream per answer over one channel."""

    def ask(self, text="?"):
        arrived = queue.Queue()
        self._client.start_stream(lambda result, error: arrived.put((result, error)))
        try:
            self._client.async_stream_infer("demo", inputs(text), enable_empty_final_response=True)
            return self._read(arrived)
        finally:
            self._client.stop_stream()

    @staticmethod
    def _read(arrived):
        texts = set()
        while True:
            result, error = arrived.get(timeout=TIMEOUT_S)
            if error is not None:
                raise error
            texts.add(text_of(result))
            if result.get_response().parameters["triton_final_response"].bool_param:
                assert len(texts) == 1, texts
                return texts.pop()


KINDS = (HttpKept, HttpStreamKept, OpenAiKept, GrpcKept, GrpcStreamKept)


class KeptClients(InThreads):
    """A client of each kind, and more of each with a pause between its requests. Used as a context."""

    def __init__(self, address, kinds=KINDS, pauses_s=(PAUSE_S, 1.0, 3.0)):
        self._address = address
        self.answers = {(kind.__name__, pause_s): [] for kind in kinds for pause_s in pauses_s}
        self.failures = []
        super().__init__(*(functools.partial(self._run, kind, pause_s) for kind in kinds for pause_s in pauses_s))

    def releases(self):
        """Releases whose pods gave each client's newest answer."""
        return {answers[-1].rsplit("-", 2)[0] for answers in self.answers.values() if answers}

    def until(self, holds):
        """Wait until `holds()`."""
        until(holds, said=lambda: f"{self.releases()} {self.failures[:3]}")

    def all_answered(self):
        return all(self.answers.values())

    def _run(self, kind, pause_s):
        client = kind(self._address)
        while not self._stop.is_set():
            try:
                self.answers[kind.__name__, pause_s].append(client.ask())
            except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                self.failures.append(f"{kind.__name__} every {pause_s} s, {time.strftime('%X')}: {error!r}"[:300])
            self._stop.wait(pause_s)
        client.close()


def inputs(text):
    tensor = grpc.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_))
    return [tensor]


def text_of(result):
    return result.as_numpy("text_output")[0].decode()
