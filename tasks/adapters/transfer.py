"""Transfers several files at a time, reports progress, and stops everything at the first failure."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from tasks.adapters.clock import Clock
from tasks.adapters.progress import Progress

FILES_AT_ONCE = 4


class Sized(Protocol):
    """An object with a known size."""

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""


S = TypeVar("S", bound=Sized)
Count = Callable[[int], None]
"""Called with the bytes transferred since the last call; raises once the transfer is given up."""


class GivenUpError(Exception):
    """Another file of the same transfer failed. Never leaves `transfer`."""


def transfer(what: str, files: Sequence[S], move: Callable[[S, Count], None], clock: Clock) -> None:
    """Call `move` for every file, the largest first, and report progress.

    Raises:
        Exception: what the first failing `move` raised, after every other one has ended.
    """
    given_up = threading.Event()
    pool = ThreadPoolExecutor(FILES_AT_ONCE)
    with Progress(what, sum(file.size_bytes for file in files), clock) as progress:

        def count(moved_bytes: int) -> None:
            if given_up.is_set():
                raise GivenUpError(what)
            progress.add(moved_bytes)

        try:
            started = [pool.submit(move, file, count) for file in sorted(files, key=lambda file: -file.size_bytes)]
            done, _ = wait(started, return_when=FIRST_EXCEPTION)
        except BaseException:  # the process was told to end: do not wait for running transfers
            given_up.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        if any(future.exception() for future in done):
            given_up.set()
        pool.shutdown(wait=True, cancel_futures=True)
    errors = [future.exception() for future in started if future.done() and not future.cancelled()]
    for error in errors:
        if error is not None and not isinstance(error, GivenUpError):
            raise error
