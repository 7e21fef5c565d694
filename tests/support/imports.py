"""What a piece of code imports, in a process of its own."""

import os
import subprocess
import sys

from tests.support.paths import REPOSITORY


def modules_after(code):
    """Names of the modules that a new process has imported when it has run `code`."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def packages_after(code):
    """Names of the packages that a new process has imported when it has run `code`."""
    return {name.partition(".")[0] for name in modules_after(code)}
