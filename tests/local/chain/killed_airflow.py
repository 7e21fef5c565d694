"""All of the stack's Airflow is killed, as by a machine that loses its power, and comes back."""

import contextlib
import os
import signal
import time
from pathlib import Path

from local.stack import Stack
from tests.local.chain.own_stack import FOLDER
from tests.support.waiting import until

SILENCE_S = 35
"""More than Airflow's `scheduler_health_check_threshold`."""


@contextlib.contextmanager
def away(chain, airflow):
    """Airflow while every process of its own was killed; afterwards its supervisor starts all of them at the same ports."""
    ports = Stack(FOLDER).settings.ports
    supervisor = int((FOLDER / "supervisor" / "supervisord.pid").read_text())
    os.kill(supervisor, signal.SIGSTOP)
    try:
        kill_all(airflow)
        yield
        # a new scheduler takes over at once what one left that has been silent for this long; else in five minutes
        time.sleep(SILENCE_S)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    chain.up()
    until(lambda: airflow.unhealthy_parts() == [])
    assert Stack(FOLDER).settings.ports == ports


def kill_all(airflow):
    """SIGKILL of every process of Airflow's, the tasks' own among them, until none is left."""
    home = f"AIRFLOW_HOME={airflow.folder}\0".encode()

    def killed():
        left = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if home in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                    os.kill(int(folder.name), signal.SIGKILL)
                    left += 1
        return left == 0

    until(killed)
