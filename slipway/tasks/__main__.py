"""Runs slipway/tasks/command.py. Python's garbage collector is off while it is imported.

Importing makes objects that stay. Looking for garbage among them took 0.11 to 0.18 s of a step's start.
"""

import gc
import os
import sys

if __name__ == "__main__":
    # read when the OpenMP runtime loads. Threads that spin while they wait take the CPUs from each other as soon as a
    # limit or a neighbour leaves fewer: a perplexity took 25 CPU seconds in place of 1.6 on two busy cores
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    gc.disable()
    from slipway.tasks.command import SIGNALLED, main, program
    from slipway.tasks.frames import with_room

    program(sys.argv[1:])
    gc.freeze()
    gc.enable()
    exit_code = with_room(main)
    gc.freeze()  # the interpreter collects garbage once more before it exits
    sys.stdout.flush()
    if exit_code >= SIGNALLED:
        os._exit(exit_code)  # threads that still wait for a socket would hold the process up
    sys.exit(exit_code)
