"""What is done to a running cluster from outside. It imports nothing of the server, which would take 0.3 s of a CPU."""

import fcntl
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .access.access import Access
from .node import shim
from .node.attempts import end_containers

STOP_PATH = "/-/stop"
"""Ends every pod and then the server. The Kubernetes API has no such paths."""
STOP_NODE, START_NODE = "/-/node/stop", "/-/node/start"
"""Take the node away, and bring it back."""
STOP_GRACE_S = 10.0
ANSWER_TIMEOUT_S = 50.0
STOP_TIMEOUT_S = STOP_GRACE_S + 110
"""A server that stops six pods beside two whole runs of the tests took more than 30 s."""


class StateInUseError(Exception):
    """Another server uses the state folder."""


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the lock of the state folder.

    Raises:
        StateInUseError: another process holds it.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateInUseError(f"a cluster already runs on {state}; stop it first") from error
        yield


def stop(state: Path) -> None:
    """Stop every container of `state` and its server, and wait for them. The server may be dead, dying or starting."""
    if not state.exists():
        return
    deadline, asked, server, failure = time.monotonic() + STOP_TIMEOUT_S, False, None, ""
    while time.monotonic() < deadline:
        # a server has the folder while it is still stopping its pods
        if _ended_without_a_server(state):
            while server and shim.start_ticks(server[0]) == server[1] and time.monotonic() < deadline:
                time.sleep(0.05)
            return
        if not asked:
            try:
                server = _server(state)
                _command(state, STOP_PATH)
                asked = True
            except (OSError, ValueError, http.client.HTTPException) as error:  # not there yet, or gone already
                failure = f": {error}"
        time.sleep(0.05)
    raise SystemExit(f"the cluster on {state} did not end within {STOP_TIMEOUT_S:.0f} s{failure}")


def _server(state: Path) -> tuple[int, int]:
    """The pid of the server of `state`, and when it began.

    Raises:
        ProcessLookupError: what the folder names has ended.
    """
    pid = json.loads((state / "server.json").read_text())["pid"]
    ticks = shim.start_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(f"{state / 'server.json'} names process {pid}, which has ended")
    return pid, ticks


def _ended_without_a_server(state: Path) -> bool:
    """End every container of `state`; False, and nothing, while a server has the folder."""
    try:
        with locked(state):
            end_containers(state / "pods", grace_s=STOP_GRACE_S)
    except StateInUseError:
        return False
    return True


def _command(state: Path, path: str) -> None:
    """Ask the running server of `state` to do what one of its own paths does."""
    headers = {"Authorization": f"Bearer {Access.of(state).token}"}
    trusted = ssl.create_default_context(cafile=state / "server.crt")
    connection = http.client.HTTPSConnection(
        "127.0.0.1", int((state / "port").read_text()), timeout=ANSWER_TIMEOUT_S, context=trusted
    )
    connection.request("POST", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"{path}: status {answer.status}")


COMMANDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "stop": ("Stop pods and server.", stop),
    "stop-node": (
        "Stop the kubelet: containers go on, and the node becomes NotReady.",
        partial(_command, path=STOP_NODE),
    ),
    "start-node": ("Start the kubelet again.", partial(_command, path=START_NODE)),
}
