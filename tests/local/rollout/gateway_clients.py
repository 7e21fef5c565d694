"""Clients of a model outside the cluster: they reach it by the host of its routes, at the address of a Gateway."""

import collections
import http.client
import json
import threading
import time

import numpy as np
from tritonclient import grpc

from tests.local.rollout.in_threads import InThreads
from tests.support.waiting import until

TIMEOUT_S = 60
PAUSE_S = 0.1


class GatewayClients(InThreads):
    """Ask `text` again and again, most over HTTP and one over gRPC; `answers` counts by release. Used as a context."""

    def __init__(self, host, port, name, at_once=14):
        self.host, self.port, self.name, self.text = host, port, name, "?"
        self.answers, self.failures, self._period = collections.Counter(), [], 0
        self._lock = threading.Lock()
        super().__init__(*[self._http] * at_once, self._grpc)

    def after(self, count):
        """Wait for `count` more answers."""
        wanted = self.answers.total() + count
        until(lambda: self.answers.total() >= wanted, said=lambda: f"{self.answers}, {self.failures[:3]}")

    def forget(self):
        """Count from zero. Answers to requests that are already under way do not count."""
        with self._lock:
            self._period += 1
            self.answers.clear()

    def _http(self):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        while not self._stop.is_set():
            with self._counted("http") as answered:
                body, host = json.dumps({"text_input": self.text}), {"Host": f"{self.name}.models.test"}
                connection.request("POST", f"/v2/models/{self.name}/generate", body, host)
                response = connection.getresponse()
                body = response.read().decode()
                assert response.status == 200, f"{response.status} {body}"
                answered(json.loads(body)["text_output"])
            self._stop.wait(PAUSE_S)
        connection.close()

    def _grpc(self):
        authority = [("grpc.default_authority", f"{self.name}-grpc.models.test")]
        with grpc.InferenceServerClient(f"{self.host}:{self.port}", channel_args=authority) as client:
            while not self._stop.is_set():
                with self._counted("grpc") as answered:
                    tensor = grpc.InferInput("text_input", [1], "BYTES")
                    tensor.set_data_from_numpy(np.array([self.text.encode()], dtype=np.object_))
                    result = client.infer(self.name, [tensor], client_timeout=TIMEOUT_S)
                    answered(result.as_numpy("text_output")[0].decode())
                self._stop.wait(PAUSE_S)

    def _counted(self, kind):
        return _Counted(self, kind)


class _Counted:
    def __init__(self, clients, kind):
        self.clients, self.kind, self.period = clients, kind, clients._period

    def __enter__(self):
        return self.answered

    def answered(self, pod):
        with self.clients._lock:
            if self.period == self.clients._period:
                self.clients.answers[pod.rsplit("-", 2)[0]] += 1

    def __exit__(self, kind, error, trace):
        if isinstance(error, Exception):
            self.clients.failures.append(f"{self.kind} {time.strftime('%X')}: {error!r}"[:300])
        return isinstance(error, Exception)
