"""The installer of the environments, for tests that make others."""

import subprocess

from local import environments


def uv(*arguments):
    """Run it; its errors are the test's."""
    command = [str(environments.installer()), *map(str, arguments)]
    done = subprocess.run(command, env=environments._environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
