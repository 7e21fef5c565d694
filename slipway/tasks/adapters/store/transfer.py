"""Transfers several files at a time, reports progress, and stops everything at the first failure."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.progress import Progress
from slipway.tasks.adapters.store.parts import PART_BYTES

FILES_AT_ONCE = 4
"""How many files of several parts may be moved at once. With fewer, an interruption loses less."""
SMALL_FILES_AT_ONCE = 16


class Sized(Protocol):
    """An object with a known size."""

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""


S = TypeVar("S", bound=Sized)
R = TypeVar("R")
Count = Callable[[int], None]
"""Called with the bytes transferred since the last call; raises once the transfer is given up."""


class GivenUpError(Exception):
    """Another file of the same transfer failed. Never leaves `transfer`."""


def transfer(what: str, files: Sequence[S], move: Callable[[S, Count], R], clock: Clock) -> list[R]:
    """Call `move` for every file, the largest first, and report progress; return what it returned, in order of `files`.

    Raises:
        Exception: what the first failing `move` raised, after every other one has ended.
    """
    given_up = threading.Event()
    pools = large, small = ThreadPoolExecutor(FILES_AT_ONCE), ThreadPoolExecutor(SMALL_FILES_AT_ONCE)
    with Progress(what, sum(file.size_bytes for file in files), clock) as progress:

        def count(moved_bytes: int) -> None:
            if given_up.is_set():
                raise GivenUpError(what)
            progress.add(moved_bytes)

        def start(index: int) -> Future[R]:
            pool = large if files[index].size_bytes > PART_BYTES else small
            return pool.submit(_moved, files[index], move, count, given_up)

        try:
            order = sorted(range(len(files)), key=lambda index: -files[index].size_bytes)
            started = {index: start(index) for index in order}
            wait(started.values(), return_when=FIRST_EXCEPTION)
        except BaseException:  # the process was told to end: do not wait for running transfers
            given_up.set()
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            raise
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)
    errors = [future.exception() for future in started.values() if future.done() and not future.cancelled()]
    for error in errors:
        if error is not None and not isinstance(error, GivenUpError):
            raise error
    return [started[index].result() for index in range(len(files))]


def _moved(file: S, move: Callable[[S, Count], R], count: Count, given_up: threading.Event) -> R:
    """What `move` returns, unless another file has failed. A failure gives the others up before another one begins."""
    count(0)
    try:
        return move(file, count)
    except BaseException:
        given_up.set()
        raise
