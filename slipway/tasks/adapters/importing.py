"""Imports of large toolkits. What they make stays, so no garbage is looked for meanwhile: that took an eighth."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from types import ModuleType


@contextmanager
def importing() -> Iterator[None]:
    """Import in the block. Objects alive at its end are never collected: import before loading anything large."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def at_first_use(name: str) -> None:
    """Let a module that a toolkit imports as a whole wait until something in it is asked for."""
    if name in sys.modules:
        return
    waiting, removing = ModuleType(name), Lock()

    def found(attribute: str) -> object:
        if attribute.startswith("__"):  # what Python itself asks a module for while it is imported
            raise AttributeError(attribute)
        with removing:
            if sys.modules.get(name) is waiting:
                del sys.modules[name]
        return getattr(import_module(name), attribute)

    waiting.__getattr__ = found  # type: ignore[method-assign]  # PEP 562
    sys.modules[name] = waiting
