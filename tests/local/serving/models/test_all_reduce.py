"""The measurement of the network by ranks of the real mpirun, as a leader starts it, with torch on CPU in place of NCCL."""

import json
import os
import socket
import subprocess
from dataclasses import replace

from slipway.tasks.contracts.site.network_check import AllReduce
from slipway.tasks.serving.rendered import commands
from tests.local.serving.models.ranks import ENVIRONMENT, MPI
from tests.local.serving.triton_server import LOOPBACK
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports

PYTHON = ENVIRONMENTS / "tasks" / "bin" / "python"


def ranks(number, *, folder, size_mib=4, timeout_s=60):
    """Run so many ranks in one pod; exit code, output, and the container's termination message."""
    (port,) = free_ports(1)
    program = [str(PYTHON), "-m", "slipway.tasks", "all-reduce", f"--leader={LOOPBACK}", f"--port={port}"]
    program += [f"--mib={size_mib}", "--backend=gloo", f"--timeout-s={timeout_s}"]
    server = replace(commands.Server(LOOPBACK, 20, "all-reduce"), program=tuple(program))
    words = commands.ranks_on_nodes(
        server, [LOOPBACK], number, mpirun=MPI / "mpirun", ssh_options=(), environment=ENVIRONMENT
    )
    message = folder / "termination"
    environment = {
        **ENVIRONMENT,
        "TMPDIR": str(folder),
        "SLIPWAY_TERMINATION_LOG": str(message),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    return done.returncode, done.stdout + done.stderr, message.read_text() if message.exists() else ""


def test_rank_0_of_two_reports_what_both_measured(tmp_path):
    code, output, message = ranks(2, folder=tmp_path)

    assert code == 0, output
    measured = AllReduce.model_validate(json.loads(message))
    assert (measured.ranks, measured.size_bytes, measured.backend) == (2, 4 * 2**20, "gloo")
    assert measured.bus_gb_per_s > 0


def test_a_rank_that_nobody_joins_gives_up_in_time_and_says_so(tmp_path):
    environment = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    with socket.create_server((LOOPBACK, 0)) as held:
        port = held.getsockname()[1]
    words = [PYTHON, "-m", "slipway.tasks", "all-reduce", f"--leader={LOOPBACK}", f"--port={port}", "--mib=1"]

    done = subprocess.run(
        [*words, "--backend=gloo", "--timeout-s=3"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 75, done.stdout
    assert "the all-reduce over gloo failed" in done.stdout
