"""Processes that are told to end where Python or asyncio lets no exception out."""

import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

PROGRAM = """
import asyncio, os, signal, sys, time, weakref
from slipway.tasks import command

class Thing:
    pass

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

def tell(*_):
    signal.raise_signal(signal.SIGTERM)

def in_a_finalizer():
    Finalized()

def in_a_callback_of_a_weak_reference():
    thing = Thing()
    reference = weakref.ref(thing, tell)
    del thing

def in_what_runs_after_a_fork():
    os.register_at_fork(after_in_parent=tell)
    if not os.fork():
        os._exit(0)

def in_what_runs_before_a_fork():
    os.register_at_fork(before=tell)
    child = os.fork()
    try:
        time.sleep(WAIT_S)
    finally:
        if child:  # it has to end, too
            os.kill(child, signal.SIGTERM)
            assert os.waitpid(child, 0)[1] >> 8 == 143

def in_a_callback_of_a_loop():
    async def main():
        asyncio.get_running_loop().call_soon(tell)
        await asyncio.sleep(WAIT_S)
    asyncio.run(main())

def in_a_task_of_a_loop():
    async def told():
        tell()
    async def main():
        task = asyncio.create_task(told())
        await asyncio.sleep(WAIT_S)
    asyncio.run(main())

def run(given, environment):
    globals()[given[0]]()
    time.sleep(WAIT_S)
    return "went on"

WAIT_S = 30
command.program = lambda given: run
sys.exit(command.main(sys.argv[1:2], {"SLIPWAY_TERMINATION_LOG": sys.argv[2]}))
"""


@pytest.mark.parametrize(
    "place",
    [
        "in_a_finalizer",
        "in_a_callback_of_a_weak_reference",
        "in_what_runs_before_a_fork",
        "in_what_runs_after_a_fork",
        "in_a_callback_of_a_loop",
        "in_a_task_of_a_loop",
    ],
)
def test_it_ends_the_process(tmp_path, place):
    said = tmp_path / "termination-log"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place, said], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert done.returncode == 143, done.stdout + done.stderr
    assert said.read_text() == "ended by SIGTERM\n"
