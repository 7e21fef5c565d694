"""`python -m local up|down|status|env|demo`: the embedded stack on one laptop."""

import argparse
import shlex
import sys
from pathlib import Path

from local.stack import DEFAULT_FOLDER, Stack
from tasks.contracts.errors import PipelineError


def main() -> int:
    """Run one command on the stack in `--folder`; 1 when a part did not start or end, and the reason is on stderr."""
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "env", "demo"])
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where the stack keeps everything")
    parser.add_argument("--specs", type=Path, help="folder of release specs; the repository's when absent")
    arguments = parser.parse_args()
    try:
        return _run(arguments.command, Stack(arguments.folder, specs=arguments.specs))
    except (RuntimeError, OSError, PipelineError) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1


def _run(command: str, stack: Stack) -> int:
    match command:
        case "up":
            stack.up()
        case "down":
            stack.down()
        case "status":
            parts = stack.status()
            for name, runs in parts.items():
                print(f"{name:13} {'runs' if runs else 'is down'}")
            return 0 if all(parts.values()) else 1
        case "env":
            for name, value in stack.client_environment().items():
                print(f"export {name}={shlex.quote(value)}")
        case _:
            from local.demo import run  # noqa: PLC0415 - the demo alone needs the command's packages

            return run(stack)
    return 0


if __name__ == "__main__":
    sys.exit(main())
