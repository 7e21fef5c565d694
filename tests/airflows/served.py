"""Real servers, each a process of its own on a port of this machine."""

import contextlib
import os
import signal
import socket
import subprocess
from typing import ClassVar

from local.processes import free_port
from tests.support.waiting import until

STARTS_S, STOP_S = 600, 60


class Served:
    """A module of Python that listens on a port within the block; a class of it says which."""

    _variables: ClassVar[dict[str, str]] = {}

    def __init__(self, python, folder):
        self._python, self._folder, self._port = python, folder, free_port()

    def __enter__(self):
        words = [str(word) for word in self._words()]
        with (self._folder / f"{words[0]}.log").open("w") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", *words],
                env=self._environment(),
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until(lambda: listens(self._port), timeout_s=STARTS_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end(self._process)

    def _environment(self):
        path = f"{self._python.parent}{os.pathsep}{os.defpath}"
        return {"PATH": path, "HOME": str(self._folder)} | self._variables


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


def end(process):
    """End a process that leads a session, and what it left of it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
