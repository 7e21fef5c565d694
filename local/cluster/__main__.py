"""Serve a cluster, `stop` one with everything that runs in it, or take its node away and bring it back."""

import argparse
import sys
from pathlib import Path

from .commands import COMMANDS

PROGRAM = f"python -m {__package__}"


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM, after which pods keep running; or stop everything.

    Returns:
        0, or 65 if the cluster cannot be started, with the reason on stderr.
    """
    if arguments[:1] and arguments[0] in COMMANDS:
        description, run = COMMANDS[arguments[0]]
        parser = argparse.ArgumentParser(prog=f"{PROGRAM} {arguments[0]}", description=description)
        parser.add_argument("--state", type=Path, required=True)
        run(parser.parse_args(arguments[1:]).state.resolve())
        return 0
    from .serve import serve  # noqa: PLC0415 - its imports take 0.3 s of a CPU, which no other command needs

    return serve(PROGRAM, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
