import threading
from dataclasses import dataclass

import pytest

from slipway.tasks.adapters.store.transfer import SMALL_FILES_AT_ONCE, transfer
from slipway.tasks.contracts.errors import UnavailableError
from tests.fakes.clock import ManualClock
from tests.support.refused import refused
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True)
class Sized:
    size_bytes: int


def test_every_file_is_moved():
    moved = []

    transfer("test", [Sized(n) for n in range(20)], lambda file, count: moved.append(file.size_bytes), ManualClock())

    assert sorted(moved) == list(range(20))


def test_the_largest_files_begin_first(monkeypatch):
    monkeypatch.setattr("slipway.tasks.adapters.store.transfer.SMALL_FILES_AT_ONCE", 1)
    began = []

    transfer("test", [Sized(n) for n in range(20)], lambda file, count: began.append(file.size_bytes), ManualClock())

    assert began == list(reversed(range(20)))


def test_one_failure_ends_the_files_that_still_move():
    moves, ended = threading.Event(), threading.Event()

    def move(file, count):
        if file.size_bytes == 1:
            assert moves.wait(PATIENCE_S)
            raise UnavailableError("the store is away")
        moves.set()
        try:
            while True:
                count(0)
        finally:
            ended.set()

    with refused(UnavailableError, what="the store is away"):
        transfer("test", [Sized(1), Sized(2)], move, ManualClock())

    assert ended.is_set()


def test_files_that_wait_are_not_begun_after_a_failure():
    begun = []

    def move(file, count):
        begun.append(file)
        raise UnavailableError("the store is away")

    with pytest.raises(UnavailableError):
        transfer("test", [Sized(1)] * 100, move, ManualClock())

    assert len(begun) <= SMALL_FILES_AT_ONCE
