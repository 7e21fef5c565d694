"""The liveness probe of OpenAI's API, on its real processes: one that is stopped is found, though the other answers."""

import os
import signal
import subprocess
import sys

import pytest

from tests.local.serving.openai_server import OpenAiServer
from tests.support.paths import REPOSITORY


class NoTriton:
    """Ports at which nothing listens: the API answers for itself."""

    http_port, grpc_port = 1, 2


@pytest.fixture
def probe(tmp_path):
    def run(*sockets):
        command = [sys.executable, "-m", "slipway.tasks.serving.pod.openai_live", *sockets]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_a_process_whose_loop_hangs_is_dead_and_alive_again_once_it_turns(probe, tmp_path):
    with OpenAiServer(NoTriton, tmp_path) as api:
        assert probe(*api.sockets).returncode == 0

        os.kill(api.openai.pid, signal.SIGSTOP)
        try:
            stopped = probe(*api.sockets)
        finally:
            os.kill(api.openai.pid, signal.SIGCONT)

        assert (stopped.returncode, stopped.stderr) == (1, f"not alive: {api.sockets[0]}: timed out\n")
        assert probe(*api.sockets).returncode == 0


def test_a_process_that_is_gone_is_dead(probe):
    assert "openai.sock" in probe("openai.sock").stderr
