"""The folder of this session's stack, and the command that starts and ends it."""

import os
import subprocess

from tests.support.paths import ENVIRONMENTS, REPOSITORY

STACKS = REPOSITORY / ".slipway" / "test-stacks"
FOLDER = STACKS / str(os.getpid())
SPECS = FOLDER / "specs"


def local(command, folder=FOLDER, *arguments):
    """`python -m local` on the folder, in the environment that is its own."""
    python = ENVIRONMENTS / "local" / "bin" / "python"
    arguments = [python, "-m", "local", command, "--folder", folder, *arguments]
    done = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
