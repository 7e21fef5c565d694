"""This session's stack in a folder of its own: the command that starts and ends it, and what tests do with it."""

import contextlib
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

from local.stack import Stack
from tests.local.chain.airflow_errors import errors_since
from tests.local.chain.whole_chain import Chain
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.processes import processes_naming
from tests.support.service_logs import LogFiles, Told, tell

STACKS = REPOSITORY / ".slipway" / "test-stacks"
FOLDER = STACKS / str(os.getpid())
SPECS = FOLDER / "specs"
NAMED = ("SLIPWAY_SITE", "SLIPWAY_AIRFLOW")


def local(command, folder=FOLDER, *arguments):
    """`python -m local` on the folder, in the environment that is its own."""
    python = ENVIRONMENTS / "local" / "bin" / "python"
    arguments = [python, "-m", "local", command, "--folder", folder, *arguments]
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def remove_stacks_of_ended_sessions():
    """A session that was killed could not end its stack; one that ended leaves its logs until now."""
    for folder in STACKS.glob("*"):
        if not Path("/proc", folder.name).exists():
            local("down", folder)
            shutil.rmtree(folder, ignore_errors=True)  # another session may be doing the same


def named_chain(scratch):
    """What the environment names instead of a stack, if it does."""
    return Chain(dict(os.environ), scratch) if all(os.environ.get(name) for name in NAMED) else None


@contextlib.contextmanager
def own_chain(scratch, *options, airflow=True):
    """A stack that lasts as long as the block; `options` are those of `python -m local up`."""
    tell(LogFiles(FOLDER / "cluster"))
    up = partial(local, "up", FOLDER, *options)
    try:
        up()
        stack = Stack(FOLDER, specs=SPECS)
        made = Chain(stack.client_environment(airflow=airflow), scratch, stack, up)
        if airflow:
            tell(Told("Airflow's errors", lambda began_at: "\n".join(errors_since(FOLDER, began_at))))
        with made.airflow if airflow else contextlib.nullcontext():
            yield made
    finally:
        local("down")
    assert processes_naming(str(FOLDER)) == {}
