"""Two ranks of one engine below the real mpirun, in one pod or on two nodes, by roll-out's own words."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from slipway.tasks.serving.rendered import commands
from tests.fakes.releases import SPEC, spec
from tests.local.serving.triton_server import LAUNCHER, LOOPBACK, TritonServer
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports
from tests.support.processes import sent

MPI = ENVIRONMENTS / "dev" / "bin"
EXIT_TIMEOUT_S = 20
ENDS_WITHIN_S = 60
STARTERS = {"mpirun", "orted"}
LOADED = "successfully loaded 'demo_tensorrt_llm'"
ENVIRONMENT = {
    "PATH": f"{MPI}:{LAUNCHER.parent}:{os.environ['PATH']}",
    # the tests' user may be root, as no serving pod's is
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # launchers find each other over loopback, whatever networks this machine has
    "OMPI_MCA_oob_tcp_if_include": "lo",
}
ENGINE = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-A10G", "tensor_parallel": 2}
ASKED = spec(quantization={"format": "none"}, engine=ENGINE)
LEADER, WORKER = LOOPBACK, "127.0.0.2"
IMAGE_MPI = REPOSITORY / "images" / "triton-multinode" / "image_mpi.py"
SSH_OPTIONS = ("-F", "/etc/slipway-mpi/ssh_config", "-o", "UserKnownHostsFile=/tmp/known_hosts")
SSH = f"""#!/bin/sh
printf '%s\\n' "$@" >> "${{0%/*}}/asked"
while [ "$1" != {WORKER} ]; do shift || exit 64; done
shift
exec env -i HOME="${{0%/*}}" TMPDIR="${{0%/*}}" $(env | grep ^OMPI_ALLOW) $(cat "${{0%/*}}/set_env") sh -c "$*"
"""
"""In place of ssh: runs a command here instead of on the worker. As under sshd, a shell is given the command; of the
environment it has what the image's SetEnv directive holds, and nothing of the asking process's."""
IMAGES_LIBRARIES = "/usr/local/tensorrt/lib"


class Ranks(TritonServer):
    """Two ranks of a pod; `process` is mpirun's."""

    def __init__(self, repository, folder, prefix):
        self.environment = {**ENVIRONMENT, "TMPDIR": str(folder), **self.further_environment(folder)}
        ports = dict(zip(commands.PORTS, free_ports(len(commands.PORTS)), strict=True))
        self.http_port, self.grpc_port, self.metrics_port = ports.values()
        self.repository, self.log, self.prefix = repository, folder / "mpirun.log", prefix
        server = commands.Server(LOOPBACK, EXIT_TIMEOUT_S, prefix, str(repository), ports)
        words = self.command(commands.server_of(ASKED, server))
        self.start([MPI / words[0], *words[1:]], self.environment)

    def further_environment(self, folder):
        return {}

    def command(self, server):
        return commands.in_a_pod(server, 2)

    def is_ready(self):
        return super().is_ready() and self.log.read_text().count(LOADED) >= 2

    def tell_to_end(self):
        """Send SIGTERM to mpirun and wait until it ended."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(ENDS_WITHIN_S)
        print(f"mpirun ended with {code}, {time.monotonic() - began:.1f} s after SIGTERM")

    def end(self):
        """At once and by force: how it ends when it is asked to is what tests look at, and takes seconds."""
        for number in self.ranks():
            with contextlib.suppress(KeyError, OSError):  # it has just ended
                pid, program = self.starter_of(number)
                if program in STARTERS:  # else its starter ended before it
                    sent(pid, signal.SIGKILL)
        self.process.kill()
        code = self.process.wait(10)
        self.clear()
        return code

    def ranks(self):
        """Pid of each rank's tritonserver by its number."""
        return {
            int(command.removesuffix("-")[-1]): pid
            for pid, command in self.processes().items()
            if re.search(rf"^\S+/tritonserver .*prefix-name={self.prefix}-rank\d+-$", command)
        }

    def starter_of(self, number):
        """Pid of the launcher that started a rank, and the launcher's program."""
        status = Path("/proc", str(self.ranks()[number]), "status").read_text()
        parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
        program = Path("/proc", parent, "cmdline").read_bytes().split(b"\0")[0].decode()
        return int(parent), Path(program).name

    def environment_of(self, number):
        """Environment that a rank was started with."""
        return self.environment_of_process(self.ranks()[number])

    def environment_of_process(self, pid):
        text = Path("/proc", str(pid), "environ").read_bytes().decode()
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


class RanksOnNodes(Ranks):
    """A rank on each of two nodes, which are this machine under two of its addresses; `process` is the leader's."""

    def further_environment(self, folder):
        # as in NVIDIA's images, mpirun lies behind a link and was built for a folder that does not exist
        prefix = folder / "hpcx"
        prefix.symlink_to(MPI.parent)
        self.ssh, self.mpirun = folder / "ssh", prefix / "bin" / "mpirun"
        self.ssh.write_text(SSH)
        self.ssh.chmod(0o755)
        own = {"PATH": f"{folder}:{prefix / 'bin'}:{ENVIRONMENT['PATH']}", "OPAL_PREFIX": str(prefix)}
        in_image = {**ENVIRONMENT, **own, "LD_LIBRARY_PATH": IMAGES_LIBRARIES}
        subprocess.run([sys.executable, IMAGE_MPI, "--write", folder / "directive"], env=in_image, check=True)
        _, *pairs = shlex.split((folder / "directive").read_text(), comments=True)
        (folder / "set_env").write_text("\n".join(pairs))
        return {**own, "NCCL_DEBUG": "WARN", "AWS_SECRET_ACCESS_KEY": "secret"}

    def _run(self):
        self.ssh.with_name("asked").unlink(missing_ok=True)
        super()._run()

    def command(self, server):
        return commands.ranks_on_nodes(
            server,
            [LEADER, WORKER],
            1,
            mpirun=self.mpirun,
            ssh_options=SSH_OPTIONS,
            environment=self.environment,
        )

    def asked_of_ssh(self):
        """Words that each remote shell was asked with."""
        return self.ssh.with_name("asked").read_text().splitlines()
