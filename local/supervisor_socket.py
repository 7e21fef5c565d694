"""Requests to supervisord: XML-RPC over a Unix socket, with the standard library alone."""

import http.client
import os
import socket
import xmlrpc.client
from pathlib import Path
from typing import Any

ANSWER_TIMEOUT_S = 60.0


class SupervisorGoneError(Exception):
    """No supervisord runs for the folder."""


def call(folder: Path, method: str, *arguments: str | bool) -> Any:
    """Call a method of the supervisord of a folder and return its answer.

    Raises:
        SupervisorGoneError: no supervisord runs.
        xmlrpc.client.Fault: supervisord refuses the request.
    """
    with xmlrpc.client.ServerProxy("http://localhost/RPC2", transport=_Transport(folder)) as server:
        try:
            return getattr(server.supervisor, method)(*arguments)
        except (FileNotFoundError, ConnectionError, http.client.HTTPException) as error:
            raise SupervisorGoneError from error


class _Transport(xmlrpc.client.Transport):
    """XML-RPC over supervisord's socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        self._connection = host, _Connection(self._folder)
        return self._connection[1]


class _Connection(http.client.HTTPConnection):
    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self._folder = folder

    def connect(self) -> None:
        # the path of a socket has at most 107 bytes; a link to the open folder is short
        descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(ANSWER_TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{descriptor}/socket")
        finally:
            os.close(descriptor)
