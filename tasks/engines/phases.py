"""Long work that a toolkit does in one call: the log says that it goes on, for nobody can say how far it is."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

INTERVAL_S = 10.0


@contextmanager
def phase(what: str, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Log `what` at its beginning, and how long it has taken so far at every interval until the block is left."""
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
