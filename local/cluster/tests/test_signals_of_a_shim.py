"""A signal that comes before the container runs is meant for it: a shim that dies of it leaves a process that nobody knows."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from local.cluster.node import shim

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def blocks_sigterm(pid):
    (mask,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk:")]
    return int(mask.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def test_it_ends_the_container_once_that_runs(tmp_path, until):
    started = subprocess.Popen([sys.executable, "-I", "-S", shim.__file__, tmp_path], stdin=subprocess.PIPE)
    until(lambda: blocks_sigterm(started.pid))
    started.send_signal(signal.SIGTERM)
    specification = {"argv": SLEEPS, "env": {}, "cwd": str(tmp_path), "memory_limit_bytes": None, "view": None}
    started.communicate(json.dumps(specification).encode())

    assert json.loads((tmp_path / "exit.json").read_text())["exitCode"] == 128 + signal.SIGTERM
