"""A deadline for a call that has none of its own."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns or raises, if it ends in time; otherwise it goes on in a thread that ends with the command.

    HTTP clients limit the wait for the next bytes only: one byte every few seconds makes headers that never end.

    Raises:
        TimeoutError: it did not end.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"there was no answer within {seconds:.0f} s")
    return results[0]
