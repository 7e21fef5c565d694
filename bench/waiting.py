"""Waits for a server that a benchmark started."""

import time
from collections.abc import Callable


def wait_until(check: Callable[[], bool], limit_s: float) -> None:
    """Return as soon as `check` is true.

    Raises:
        SystemExit: it is not after `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit(f"a server did not start within {limit_s:g} s; see what it printed, then try again")
        time.sleep(0.1)
