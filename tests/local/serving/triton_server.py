"""The real Triton of the serving environment, started over a repository on free loopback ports."""

import http.client
import json
import os
import queue
import secrets
import signal
import subprocess
import threading
import time
from functools import partial

import numpy as np
from tritonclient import grpc

from slipway.tasks.serving.pod.boot import CRASHES, MAY_PASS, SHARED_MEMORY
from tests.support.paths import ENVIRONMENTS
from tests.support.ports import free_ports
from tests.support.processes import processes_naming, sent
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S

ENVIRONMENT = ENVIRONMENTS / "triton"
LAUNCHER = ENVIRONMENT / "bin" / "tritonserver"
LOOPBACK = "127.0.0.1"
EXIT_TIMEOUT_S = 20
COUNTS_S = 0.1
"""Longer than Triton takes to count a request that it has answered."""


class CrashError(AssertionError):
    """Triton ended in a way that a second start may not repeat (slipway/tasks/serving/pod/boot.py)."""


class TritonServer:
    """One server process; `with` ends it, by its own pid. One that crashes before it is ready is started once more.

    The stub ignores PYTHONPATH and has its working directory first on its path: `first_on_path` comes in that way. The
    command line or the environment of what it starts holds its `prefix`, with which the names of its shared memory begin.
    """

    ready_s = PATIENCE_S

    def __init__(
        self,
        repository,
        folder,
        first_on_path=None,
        environment=None,
        arguments=(),
        metrics=False,
        launcher=LAUNCHER,
        ready_s=PATIENCE_S,
    ):
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        self.repository, self.log = repository, folder / "tritonserver.log"
        self.ready_s, self.prefix = ready_s, f"tests-{os.getpid()}-{secrets.token_hex(4)}"
        command = [
            launcher,
            f"--model-repository={repository}",
            f"--http-address={LOOPBACK}",
            f"--http-port={self.http_port}",
            f"--grpc-address={LOOPBACK}",
            f"--grpc-port={self.grpc_port}",
            *(
                [f"--metrics-port={self.metrics_port}", f"--metrics-address={LOOPBACK}"]
                if metrics
                else ["--allow-metrics=false"]
            ),
            "--pinned-memory-pool-byte-size=0",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name={self.prefix}",
            f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
            *arguments,
        ]
        tell(LogFiles(self.log))
        self.start(command, {"PATH": os.environ["PATH"], **(environment or {})}, first_on_path or folder)

    def start(self, command, environment, folder=None):
        """Run the command. Its log is what it says, and not what a crashed one said before."""
        named = {**environment, "SLIPWAY_TEST_SERVER": self.prefix}
        self._popen = partial(subprocess.Popen, command, env=named, cwd=folder)
        self._run()

    def _run(self):
        with self.log.open("wb") as log:
            self.process = self._popen(stdout=log, stderr=log)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except CrashError as crash:
            print(f"started once more: {crash}")
            self._run()
            self.wait_until_ready()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(EXIT_TIMEOUT_S + 10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
            self.clear()
            return code

    def clear(self):
        """Kill what is left of a server that did not end in order, and remove its shared memory."""
        for pid in self.processes():
            sent(pid, signal.SIGKILL)
        for name in self.regions():
            (SHARED_MEMORY / name).unlink(missing_ok=True)

    def processes(self):
        """Command lines, by pid, of what was started for it: launchers, servers and their models' processes."""
        return processes_naming(self.prefix)

    def regions(self):
        """Names of its shared memory."""
        return [region.name for region in SHARED_MEMORY.glob(f"{self.prefix}*")]

    def wait_until_ready(self):
        deadline = time.monotonic() + self.ready_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.is_ready():
                return
            time.sleep(0.1)
        code, text = self.end(), self.log.read_text()
        self.clear()
        errors = "\n".join(line for line in text.splitlines() if line.startswith("E"))
        crashed = code in CRASHES or MAY_PASS.search(text)
        raise (CrashError if crashed else AssertionError)(f"Triton was not ready:\n{errors}\n{text[-3000:]}")

    def is_ready(self):
        try:
            return self._exchange("GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def begun(self, model="demo"):
        """How many requests the model has been given. Triton counts one a moment after its answer."""
        before, now = None, self._counted(model)
        while now != before:
            time.sleep(COUNTS_S)
            before, now = now, self._counted(model)
        return now

    def _counted(self, model):
        (statistics,) = json.loads(self._exchange("GET", f"/v2/models/{model}/stats")[1])["model_stats"]
        return statistics["execution_count"]

    def generate(self, *, model="demo", **inputs):
        """Status and body of /generate."""
        status, body = self._exchange("POST", f"/v2/models/{model}/generate", inputs)
        return status, json.loads(body)

    def stream(self, *, model="demo", **inputs):
        """Open a /generate_stream; see HttpStream."""
        return HttpStream(self.http_port, model, inputs)

    def _exchange(self, method, path, body=None):
        connection = http.client.HTTPConnection(LOOPBACK, self.http_port, timeout=60)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


class HttpStream:
    """Server-sent events of one /generate_stream, read as they come."""

    def __init__(self, port, model, inputs):
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        self._connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps({"stream": True, **inputs}))
        self._response = self._connection.getresponse()
        self.status = self._response.status

    def __iter__(self):
        for line in self._response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
        self.disconnect()  # Triton waits for idle connections when it stops

    def disconnect(self):
        """Leave without a word, as a browser does that is closed."""
        self._response.close()
        self._connection.close()


class RunningAnswer:
    """A stream that is read as it comes, in a thread of its own: what is answered before it ends did not wait for it."""

    def __init__(self, server, **inputs):
        self._stream, self._left, self.has_ended = server.stream(**inputs), threading.Event(), False
        events = iter(self._stream)
        next(events)
        self._reader = threading.Thread(target=self._read, args=(events,))
        self._reader.start()

    def outlasts(self, ask):
        """Whether it goes on while `ask` is called twenty times, which gives an end that was sent time to arrive."""
        for _ in range(20):
            ask()
        return not self.has_ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._left.set()
        self._reader.join()

    def _read(self, events):
        for _ in events:
            if self._left.is_set():
                self._stream.disconnect()
                return
        self.has_ended = True


class GrpcStream:
    """One request over a bidirectional gRPC stream."""

    def __init__(self, port, **inputs):
        self.arrived = queue.Queue()
        self._client = grpc.InferenceServerClient(f"{LOOPBACK}:{port}")
        self._client.start_stream(lambda result, error: self.arrived.put((result, error)))
        self._client.async_stream_infer(
            "demo", tensors(grpc, **{"stream": True, **inputs}), enable_empty_final_response=True
        )

    def __iter__(self):
        final = False
        while not final:
            result, error = self.arrived.get(timeout=60)
            assert error is None, error
            yield {name: text_of(result, name) for name in ("text_output", "finish_reason")}
            final = result.get_response().parameters["triton_final_response"].bool_param

    def leave(self, *, cancel=False):
        self._client.stop_stream(cancel_requests=cancel)
        self._client.close()


def tensors(client, **inputs):
    """Inputs for tritonclient.http or tritonclient.grpc, whichever module `client` is."""
    kinds = {
        "text_input": ("BYTES", np.object_),
        "max_tokens": ("INT32", np.int32),
        "stream": ("BOOL", np.bool_),
        "temperature": ("FP32", np.float32),
        "seed": ("UINT64", np.uint64),
    }
    made = []
    for name, value in inputs.items():
        kind, dtype = kinds[name]
        tensor = client.InferInput(name, [1], kind)
        tensor.set_data_from_numpy(np.array([value.encode() if isinstance(value, str) else value], dtype=dtype))
        made.append(tensor)
    return made


def text_of(result, name):
    return result.as_numpy(name)[0].decode()


def together(count, ask):
    """Call `ask(0)` to `ask(count - 1)`, each in a thread of its own; results in order."""
    results = [None] * count
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        results[number] = ask(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def has_package(name):
    """Whether the serving environment has it."""
    return any((ENVIRONMENT / "lib").glob(f"python3.*/site-packages/{name}"))
