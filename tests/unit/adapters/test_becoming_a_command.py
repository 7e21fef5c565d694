"""A process that turns into another one: no shell, no child, the other's own exit code."""

import subprocess
import sys

import pytest

from slipway.tasks.adapters.process import become
from slipway.tasks.contracts.errors import InputError


def test_the_process_is_the_command_from_then_on():
    script = "import os, sys; sys.path.insert(0, '.'); from slipway.tasks.adapters.process import become; "
    script += "print(os.getpid()); become(['python3', '-c', 'import os, sys; print(os.getpid()); sys.exit(7)'])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    before, after = done.stdout.split()
    assert (before, done.returncode) == (after, 7)


def test_a_command_that_is_not_there_is_refused_by_name():
    with pytest.raises(InputError) as caught:
        become(["no-such-command"])

    assert caught.value.what == "no-such-command is not on PATH"
