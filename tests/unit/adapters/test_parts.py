import hashlib
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipway.tasks.adapters.store.parts import BUFFER_BYTES, PART_BYTES, Lanes, RateLimit, part_bytes_of
from tests.fakes.clock import ManualClock

DATA = bytes(range(251)) * (5 * PART_BYTES // 502)  # two parts and a half


class Moved:
    """Reads DATA and keeps what is written."""

    def __init__(self, fails_at=None):
        self.fails_at, self.written, self.sha256 = fails_at, {}, hashlib.sha256()

    def read(self, offset, view):
        if offset == self.fails_at:
            raise OSError("cut")
        view[:] = DATA[offset : offset + len(view)]

    def write(self, offset, view):
        self.written[offset] = bytes(view)

    def all(self):
        return b"".join(self.written[offset] for offset in sorted(self.written))


@pytest.mark.parametrize("start", [0, 1, PART_BYTES, len(DATA)])
def test_every_byte_is_written_and_digested_once(start):
    moved = Moved()

    Lanes().move(len(DATA), moved.read, moved.sha256.update, moved.write, start=start)

    assert moved.all() == DATA[start:]
    assert moved.sha256.digest() == hashlib.sha256(DATA[start:]).digest()


def test_what_is_written_in_order_has_no_holes():
    moved = Moved()

    Lanes().move(len(DATA), moved.read, moved.sha256.update, moved.write, in_order=True)

    assert list(moved.written) == sorted(moved.written)


@pytest.mark.parametrize("fails_at", [0, PART_BYTES, 2 * PART_BYTES])
def test_a_failure_ends_the_file_and_gives_the_memory_back(fails_at):
    lanes = Lanes()
    for _ in range(2 * BUFFER_BYTES // PART_BYTES):
        failing = Moved(fails_at)
        with pytest.raises(OSError, match="cut"):
            lanes.move(len(DATA), failing.read, failing.sha256.update, failing.write)

    whole = Moved()
    lanes.move(len(DATA), whole.read, whole.sha256.update, whole.write)

    assert whole.all() == DATA


def test_memory_does_not_grow_with_the_size_of_a_file():
    held, most, lock = [0], [0], threading.Lock()

    def read(_, view):
        with lock:
            held[0] += len(view)
            most[0] = max(most[0], held[0])

    def write(_, view):
        with lock:
            held[0] -= len(view)

    Lanes(connections=64).move(100 * PART_BYTES, read, lambda _: None, write, reads_at_once=lambda: 64)

    assert held == [0]
    assert 0 < most[0] <= BUFFER_BYTES


def test_over_one_connection_each_part_is_written_before_the_next_one_is_read():
    """Ranges turn out to be taken while the first part arrives."""
    order, asked, begun = [], [], threading.Event()

    def read(offset, _):
        order.append(("read", offset // PART_BYTES))
        begun.set()

    def reads_at_once():
        asked.append(None)
        return 16 if len(asked) > 1 and begun.wait() else 1

    Lanes(connections=1).move(
        3 * PART_BYTES,
        read,
        lambda _: None,
        lambda offset, _: order.append(("written", offset // PART_BYTES)),
        reads_at_once=reads_at_once,
    )

    assert order == [(what, part) for part in range(3) for what in ("read", "written")]


def test_parts_of_several_sizes_share_the_same_memory():
    lanes = Lanes(connections=64)
    tracemalloc.start()
    try:
        for part_bytes in (PART_BYTES, 14 * 2**20, 2**20, 14 * 2**20):
            lanes.move(
                40 * part_bytes, lambda *_: None, lambda _: None, lambda *_: time.sleep(0.01), part_bytes=part_bytes
            )
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most_bytes <= BUFFER_BYTES + 2**20


def test_parts_that_arrive_leave_half_of_the_memory_to_those_that_are_written():
    lanes, arriving, most, lock = Lanes(connections=64), [0], [0], threading.Lock()

    def read(_, view):
        with lock:
            arriving[0] += len(view)
            most[0] = max(most[0], arriving[0])

    def digest(view):
        with lock:
            arriving[0] -= len(view)

    def file(_):
        lanes.move(50 * PART_BYTES, read, digest, lambda *_: None, reads_at_once=lambda: 64)

    with ThreadPoolExecutor(4) as files:
        list(files.map(file, range(4)))

    assert arriving == [0]
    assert 0 < most[0] <= BUFFER_BYTES // 2


def test_a_part_that_exceeds_the_memory_is_moved_alone():
    large = BUFFER_BYTES + 1
    sizes = []

    Lanes().move(large, lambda *_: None, lambda _: None, lambda _, view: sizes.append(len(view)), part_bytes=large)

    assert sizes == [large]


@pytest.mark.parametrize(("size_bytes", "expected"), [(1, PART_BYTES), (140 * 10**9, 14 * 2**20)])
def test_parts_are_as_large_as_the_most_parts_require(size_bytes, expected):
    assert part_bytes_of(size_bytes, 10_000) == expected


def test_a_rate_limit_holds_over_everything_that_shares_it():
    clock = ManualClock()
    limit, began = RateLimit(1000, clock), clock.monotonic()

    for _ in range(5):
        limit.take(2000)

    assert clock.monotonic() - began == pytest.approx(8)  # the last one waited for the four before it


def test_without_a_rate_nothing_waits():
    clock = ManualClock()
    began = clock.monotonic()

    RateLimit(None, clock).take(10**12)

    assert clock.monotonic() == began
