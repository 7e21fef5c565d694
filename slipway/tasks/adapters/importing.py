"""Imports of large toolkits. What they make stays, so no garbage is looked for meanwhile: that took an eighth."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import in the block; what is there at its end is never looked at again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
