"""What Python maps while functions call each other at a depth where a chunk of frames ends."""

import resource
import sys
from threading import Thread
from types import FunctionType

import pytest

from slipway.tasks.frames import with_room

CALLS, DEPTHS = 300, 150


def nothing():
    pass


def faults_of_calls(deeper):
    """Page faults of calls beneath so many frames: one for each chunk that is mapped for a call."""
    if deeper:
        return deeper.pop()(deeper)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        nothing()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def most_faults():
    """At the worst of many depths, in steps smaller than the frame of `nothing`."""
    sizes = [FunctionType(faults_of_calls.__code__.replace(co_stacksize=8 + more), globals()) for more in range(24)]
    return max(size([size] * depth) for size in sizes for depth in range(DEPTHS))


def in_a_thread(call):
    """What it returns in a thread, which has a stack of its own."""
    found = []
    thread = Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_with_room_no_depth_maps_memory_for_each_call():
    assert in_a_thread(lambda: with_room(most_faults)) < CALLS


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="its later releases keep a spare chunk")
def test_without_room_some_depth_maps_memory_for_each_call():
    assert in_a_thread(most_faults) >= CALLS


def test_its_result_is_the_calls():
    assert with_room(lambda: "result") == "result"
