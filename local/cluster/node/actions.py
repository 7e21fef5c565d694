"""Runs the actions of probes and hooks: an HTTP request, a connection or a command."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from .confinement import View, command_in

BODY_CHARS = 256
FAILED = 400


class ActionError(Exception):
    """The action failed; the text goes into the event."""


@dataclass(frozen=True)
class Runtime:
    """How a container runs. `command` turns the command of an exec action into an argument vector."""

    address: str
    ports: Mapping[str, int]
    environment: Mapping[str, str]
    directory: Path
    command: Callable[[list[str]], list[str]]
    view: View | None = None
    """None for a container with a writable root, which may write wherever its user may."""


async def act(action: Mapping[str, Any], runtime: Runtime, timeout_s: float) -> None:
    """Run the action of a probe or a lifecycle handler.

    Raises:
        ActionError: the action failed or took longer than `timeout_s`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            if "httpGet" in action:
                await _get(action["httpGet"], runtime)
            elif "tcpSocket" in action:
                await _connect(action["tcpSocket"], runtime)
            elif "exec" in action:
                await _execute(action["exec"]["command"], runtime)
            elif "sleep" in action:
                await asyncio.sleep(action["sleep"]["seconds"])
    except TimeoutError as error:
        raise ActionError(f"no answer within {timeout_s:g} s") from error


async def _get(request: Mapping[str, Any], runtime: Runtime) -> None:
    host, port = request.get("host") or runtime.address, _port(request["port"], runtime)
    url = f"{request.get('scheme', 'HTTP').lower()}://{host}:{port}/{request.get('path', '/').lstrip('/')}"
    headers = {header["name"]: header["value"] for header in request.get("httpHeaders") or []}
    try:
        async with (
            aiohttp.ClientSession(headers={"User-Agent": "kube-probe/1.32"}) as session,
            session.get(url, headers=headers, ssl=False, allow_redirects=False) as response,
        ):
            if response.status >= FAILED:
                body = (await response.text(errors="replace"))[:BODY_CHARS]
                raise ActionError(f"HTTP probe failed with statuscode: {response.status} {body}".strip())
    except (aiohttp.ClientError, OSError) as error:
        raise ActionError(f'Get "{url}": {error}') from error


async def _connect(target: Mapping[str, Any], runtime: Runtime) -> None:
    host, port = target.get("host") or runtime.address, _port(target["port"], runtime)
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise ActionError(f"dial tcp {host}:{port}: {error.strerror}") from error
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _execute(command: list[str], runtime: Runtime) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *(command_in(runtime.view) if runtime.view else []),
            *runtime.command(command),
            env=dict(runtime.environment),
            cwd=runtime.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ActionError(f"exec: {command[0]!r}: {error.strerror}") from error
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        text = output.decode(errors="replace")[:BODY_CHARS].strip()
        raise ActionError(f"command exited with {process.returncode}: {text}")


def _port(port: str | int, runtime: Runtime) -> int:
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    if port not in runtime.ports:
        raise ActionError(f"the container has no port named {port!r}")
    return runtime.ports[port]
