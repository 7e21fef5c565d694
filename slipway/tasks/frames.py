"""Room for the frames of Python's functions.

CPython 3.11 to 3.13 keep them in chunks of 16 KiB. A call that needs the next one maps it, and its return unmaps it: a
loop at just that depth asks the kernel twice for each call (python/cpython#142183; later 3.13 keep one spare). Great
Expectations did so 35,000 times while it was imported and judged one column, a sixth of its CPU time.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WORDS = 1 << 16
"""What the frame of `with_room` pretends to need, 512 KiB that nobody touches: its chunk is the next power of two, and
what it calls has the other half, some thousand frames."""


def with_room(call: Callable[[], T]) -> T:
    """Call it where its calls and theirs, in this thread, find room for their frames; return what it returns."""

    def roomy() -> T:
        return call()

    roomy.__code__ = roomy.__code__.replace(co_stacksize=WORDS)
    return roomy()
