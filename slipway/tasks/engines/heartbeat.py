"""Logs that a toolkit's long call is still running, because its progress cannot be measured."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

INTERVAL_S = 10.0


@contextmanager
def phase(what: str, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Log `what` when the block begins, and the elapsed time at every interval until it ends."""
    ended = threading.Event()

    def report() -> None:
        seconds = interval_s
        while not ended.wait(interval_s):
            log.info("%s: %.0f s so far", what, seconds)
            seconds += interval_s

    log.info(what)
    reporter = threading.Thread(target=report, name="phase", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
