"""`python -m local.launch FILE`: started by the supervisor for a service; it then becomes the service.

First it ends processes that the service's last run left behind: the supervisor knows only the first process of a
service, and Airflow's scheduler forks workers that survive it. It imports no third-party package, so it starts fast.
"""

import json
import os
import sys
from pathlib import Path

from local.private_files import PRIVATE_UMASK
from local.processes import SERVICE, STACK, end, having


def main(file: Path) -> None:
    """Replace this process with the service that `file` describes."""
    service = json.loads(file.read_text())
    os.umask(PRIVATE_UMASK)
    log = os.open(service["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    environment = service["environment"]
    known_by = {STACK: environment[STACK], SERVICE: environment[SERVICE]}
    end(lambda: having(**known_by), timeout_s=0)
    os.chdir(service["working_directory"])
    os.execve(service["command"][0], service["command"], environment)  # noqa: S606 - a service, without a shell


if __name__ == "__main__":
    main(Path(sys.argv[1]))
