"""Several ranks of one engine, started by the real mpirun with roll-out's own words: the five models in real Triton.

Each rank holds the stand-in where it would hold its share of an engine; nothing is computed together.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tasks.contracts.spec import SmokeQuestion
from tasks.engines.boot import SHARED_MEMORY, BootTest
from tasks.rollout import launch
from tasks.rollout.placement import placed
from tasks.steps.assemble import serving_command
from tests.fakes.gpu_site import gpu_site
from tests.fakes.releases import SPEC, spec
from tests.local.serving.triton_server import LAUNCHER, LOOPBACK, ROOT, GrpcStream, TritonServer

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
LONG = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 3, "max_tokens": 150}
MPI = ROOT / ".slipway" / "envs" / "dev" / "bin"
EXIT_TIMEOUT_S = 20
ENVIRONMENT = {
    "PATH": f"{MPI}:{LAUNCHER.parent}:{os.environ['PATH']}",
    # the tests' user may be root, as no serving pod's is
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
ENGINE = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-A10G", "tensor_parallel": 2}
ASKED = spec(quantization={"format": "none"}, engine=ENGINE)


class Ranks(TritonServer):
    """Two ranks below one mpirun; `process` is mpirun's."""

    def __init__(self, repository, folder, prefix):
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.create_server((LOOPBACK, 0))) for _ in launch.PORTS]
            ports = {name: each.getsockname()[1] for name, each in zip(launch.PORTS, sockets, strict=True)}
        self.http_port, self.grpc_port, self.metrics_port = ports.values()
        self.log, self.prefix = folder / "mpirun.log", prefix
        server = launch.Server(LOOPBACK, EXIT_TIMEOUT_S, prefix, str(repository), ports)
        words = launch.in_a_pod(launch.server_of(ASKED, 2, server), 2)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([MPI / words[0], *words[1:]], stdout=log, stderr=log, env=ENVIRONMENT)

    def wait_until_ready(self):
        super().wait_until_ready()
        deadline = time.monotonic() + 30
        while "successfully loaded" not in self.log.read_text() or len(self.ranks()) < 2:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.1)

    def end(self):
        """At once and by force: how it ends when it is asked to is what tests look at, and takes seconds."""
        pids = [self.process.pid, *self.ranks().values()]
        for pid in pids if self.process.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        for region in SHARED_MEMORY.glob(f"{self.prefix}*"):
            region.unlink()

    def ranks(self):
        """Pid of each rank's tritonserver by its number."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                numbers = [word for word in words if word.endswith("-") and f"prefix-name={self.prefix}-rank" in word]
                if numbers and "tritonserver" in words[0]:
                    found[int(numbers[0][-2])] = int(process.name)
        return found

    def regions(self):
        return [region.name for region in SHARED_MEMORY.glob(f"{self.prefix}*")]


@pytest.fixture(scope="module")
def repository(make_topology):
    return make_topology()


@pytest.fixture(scope="module")
def start_ranks(repository, tmp_path_factory):
    with contextlib.ExitStack() as running:

        def start(prefix):
            return running.enter_context(Ranks(repository, tmp_path_factory.mktemp(prefix), prefix))

        yield start


@pytest.fixture(scope="module")
def two(start_ranks):
    return start_ranks("ranks-of-a-test")


def listening(pid):
    """Ports on which a process takes connections."""
    inodes = {str(fd.readlink()) for fd in Path("/proc", str(pid), "fd").iterdir() if fd.is_symlink()}
    tables = (Path("/proc", str(pid), "net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_one_rank_answers_and_the_other_listens_to_nobody(two):
    status, body = two.generate(text_input=QUESTION)

    assert (status, body["text_output"]) == (200, ANSWER)
    ranks = two.ranks()
    assert listening(ranks[0]) >= {two.http_port, two.grpc_port, two.metrics_port}
    assert not listening(ranks[1]) & {two.http_port, two.grpc_port, two.metrics_port, 8000, 8001, 8002}


def test_the_other_rank_loads_the_engine_and_nothing_else(two):
    log = two.log.read_text()

    assert log.count("successfully loaded 'demo_tensorrt_llm'") == 2
    assert log.count("successfully loaded 'demo_preprocessing'") == 1


def test_two_servers_side_by_side_share_no_memory(two, start_ranks):
    other = start_ranks("others-of-a-test")

    assert two.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    assert other.generate(text_input=QUESTION)[1]["text_output"] == ANSWER
    for server in (two, other):
        assert {name.removeprefix(server.prefix)[:6] for name in server.regions()} == {"-rank0", "-rank1"}


def test_an_answer_is_whole_before_the_signal_and_every_rank_ends_after_it(start_ranks):
    """With several ranks the signal takes along what is under way, so that preStop sleeps before it."""
    server = start_ranks("told-to-end")
    stream = GrpcStream(server.grpc_port, **LONG)
    reasons = [piece["finish_reason"] for piece in stream]
    stream.leave()

    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    print(f"mpirun ended with {server.process.returncode}, {time.monotonic() - began:.1f} s after SIGTERM")

    assert reasons[-1] == "length"
    assert server.ranks() == {}
    assert server.regions() == []


def test_a_rank_that_dies_ends_all_of_them(start_ranks):
    server = start_ranks("one-will-die")

    os.kill(server.ranks()[1], signal.SIGKILL)

    assert server.process.wait(60) != 0
    assert server.ranks() == {}


def test_the_boot_test_starts_both_ranks_and_leaves_none(repository, tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    started = []

    def command(place):
        started.append(place.shared_memory_prefix)
        return serving_command(ASKED, placed(ASKED, gpu_site()), place)

    boot = BootTest(RealClock(), tmp_path, command, ready_timeout_s=60)

    answer = boot.ask(repository, "demo", SmokeQuestion(prompt=QUESTION, answer=ANSWER))

    log = (tmp_path / "tritonserver.log").read_text()
    assert answer.text.strip() == ANSWER
    assert log.count("successfully loaded 'demo_tensorrt_llm'") == 2
    assert list(SHARED_MEMORY.glob(f"{started[0]}*")) == []


class RealClock:
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
