"""LoRA adapters that come and go while the model runs.

A container beside the server writes a file: for each name that requests may give, the key of the adapter that it
means, whose folder lies beside the file (slipway/tasks/serving/pod/adapter_files.py).
"""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

from generation.requests.adapters import MARK, Adapter

FOLDER = "SLIPWAY_ADAPTERS"
"""Environment of the serving pod: the folder of the file; absent where the release takes no further adapters."""
FILE = "adapters.json"
LOOK_S = 0.5
KEY_DIGITS = 12
AGAIN_S = 10.0
"""Between two tries of an adapter that could not be loaded."""


class LiveAdapters(Mapping[str, Adapter]):
    """The adapters by the names that requests may give now: those of the release, and those of the file.

    One that the runtime has not loaded yet is not there. What a name means changes in one step, and a request that
    began with an adapter keeps it. What was on trial as the server started is left out for good: it may be what ended
    the server before, and each trial has names of its own.
    """

    def __init__(
        self,
        fixed: Mapping[str, Adapter],
        folder: Path,
        load: Callable[[Adapter], None],
        log: Callable[[str], object],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load what the file has; `load` has the runtime load an adapter, and raises where it cannot.

        Raises:
            Exception: a name of the file means an adapter that cannot be loaded.
        """
        self._fixed, self._folder, self._load, self._log = dict(fixed), folder, load, log
        self._monotonic = monotonic
        self._numbers = count(len(fixed) + 1)
        self._loaded: dict[str, Adapter] = {}
        self._left_out: set[str] = set()
        self._read: bytes | None = None
        self._again_at = math.inf
        self._now = self._fixed
        self.look(starts=True)

    def __getitem__(self, name: str) -> Adapter:
        return self._now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)

    def watch(self) -> None:
        """Look at the file from now on, in a thread of its own."""
        threading.Thread(target=self._watch, name="adapters", daemon=True).start()

    def look(self, *, starts: bool = False) -> None:
        """Load what the file has, if it is another one than at the last look or a load of it failed some time ago."""
        try:
            text = (self._folder / FILE).read_bytes()
        except FileNotFoundError:
            return
        if text == self._read and self._monotonic() < self._again_at:
            return
        labels = json.loads(text)["labels"]
        found: dict[str, Adapter] = {}
        tried: set[str] = set()
        for name, key in labels.items():
            own = f"{name.partition(MARK)[0]}{MARK}{key[:KEY_DIGITS]}"
            if starts and name.partition(MARK)[2] and name != own:
                self._left_out.add(name)
            if name in self._left_out:
                continue
            if own not in self._loaded and own not in tried:
                tried.add(own)
                self._try(Adapter(own, next(self._numbers), self._folder / key), starts=starts)
            if own in self._loaded:
                found[name] = self._loaded[own]
        self._now = {**self._fixed, **found}
        self._read = None if starts else text
        self._again_at = math.inf if found.keys() == labels.keys() - self._left_out else self._monotonic() + AGAIN_S

    def _try(self, adapter: Adapter, *, starts: bool) -> None:
        try:
            self._load(adapter)
        except Exception as error:
            self._log(f"adapter {adapter.name} cannot be loaded: {error}")
            if starts:
                raise
            return
        self._loaded[adapter.name] = adapter

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - a thread's exception is seen by nobody
                self._log(f"adapters cannot be read: {error!r}")
