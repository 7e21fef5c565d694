"""How long the command asks again while Airflow does not answer: a run goes on without it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from slipway.tasks.contracts.errors import UnavailableError

PATIENCE_S = 600.0
"""Longer than an Airflow takes to be upgraded."""
PAUSE_S = 2.0

T = TypeVar("T")


@dataclass
class Silence:
    """How long Airflow has not answered: from the first request that failed, however long that one took."""

    clock: Callable[[], float] = time.monotonic
    _began: float | None = None

    def over(self) -> None:
        """Airflow has answered."""
        self._began = None

    def check(self, error: UnavailableError) -> None:
        """Record a request that failed.

        Raises:
            UnavailableError: `error`, once Airflow has been silent for PATIENCE_S.
        """
        now = self.clock()
        if self._began is None:
            self._began = now
        if now - self._began >= PATIENCE_S:
            raise error


def patiently(ask: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """What `ask` returns, as soon as Airflow answers. It may be called several times.

    Raises:
        UnavailableError: Airflow did not answer for PATIENCE_S.
    """
    silence = Silence()
    while True:
        try:
            return ask()
        except UnavailableError as error:
            silence.check(error)
        sleep(PAUSE_S)
