"""`python3 -m bench.load --cpus 4 -- make test`: a command beside busy CPUs, as on a machine that others use too.

Each busy process has a session of its own. Where the kernel divides CPU time between sessions (autogroup in sched(7)),
it would otherwise slow down the command's own session alone. Ends with the command's exit code. Needs no environment.
"""

import argparse
import os
import subprocess
import sys

BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"


def main() -> int:
    """Start that many processes that compute, run the command to its end, and end them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=4, help="processes that compute all the time")
    parser.add_argument("command", nargs="+", help="the command, after --")
    arguments = parser.parse_args()
    compute, busy = [sys.executable, "-S", "-c", BUSY, str(os.getpid())], list[subprocess.Popen[bytes]]()
    try:
        for _ in range(arguments.cpus):
            busy.append(subprocess.Popen(compute, start_new_session=True))
        return subprocess.run(arguments.command, check=False).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
