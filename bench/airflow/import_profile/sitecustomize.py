# noqa: INP001 - a folder for PYTHONPATH
"""Python imports this when it starts: it notes what importing each module costs, in CPU seconds of its thread.

Each process writes a line per module to a file of its own below $SLIPWAY_IMPORTS, and its own CPU seconds at the end.
"""

import atexit
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from typing import Any

rows: list[tuple[str, int, float]] = []
"""Name, depth and seconds of each import, in the order of their ends."""
depth = 0


def timed(loads: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a loader that notes how long it takes, with everything that it imports."""

    @functools.wraps(loads)
    def load(loader: Any, what: Any) -> Any:
        global depth  # noqa: PLW0603 - imports nest
        depth, began = depth + 1, time.thread_time()
        try:
            return loads(loader, what)
        finally:
            depth -= 1
            name = getattr(what, "__spec__", what).name
            rows.append((name, depth, time.thread_time() - began))

    return load


def write(folder: str) -> None:
    """Write what was noted."""
    document = {"argv": sys.orig_argv, "cpu_s": time.process_time(), "rows": rows}
    Path(folder, f"{os.getpid()}.json").write_text(json.dumps(document), encoding="utf-8")


if folder := os.environ.get("SLIPWAY_IMPORTS"):
    SourceFileLoader.exec_module = timed(SourceFileLoader.exec_module)  # type: ignore[method-assign]
    ExtensionFileLoader.create_module = timed(ExtensionFileLoader.create_module)  # type: ignore[method-assign]
    ExtensionFileLoader.exec_module = timed(ExtensionFileLoader.exec_module)  # type: ignore[method-assign]
    atexit.register(write, folder)
