"""`python -m local up|down|status|env`: the embedded stack on one laptop."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from local.private_files import PRIVATE_UMASK
from local.stack import DEFAULT_FOLDER, Stack
from slipway.tasks.contracts.errors import PipelineError


def main() -> int:
    """Run one command on the stack in `--folder`; 1 if a part did not start or stop, with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "env"])
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="folder of the stack's files")
    parser.add_argument("--specs", type=Path, help="folder of release specs; default: the repository's")
    parser.add_argument("--hub", help="up: address of the Hub for releases; default: the stack's own")
    parser.add_argument("--fixtures", type=Path, help="up: what the stack's own Hub serves; default: the tests' models")
    parser.add_argument("--site", type=Path, help="up: another site than sites/local.yaml, without its addresses")
    parser.add_argument("--images", type=Path, help="up: another table of images (local/cluster/README.md)")
    parser.add_argument(
        "--cluster-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="up: an option of the cluster's server, as in --cluster-option=--device=nvidia.com/gpu=2",
    )
    parser.add_argument("--without-airflow", action="store_true", help="up: only cluster, Hub and object store")
    arguments = parser.parse_args()
    os.umask(PRIVATE_UMASK)
    try:
        stack = Stack(
            arguments.folder,
            fixtures=arguments.fixtures,
            specs=arguments.specs,
            hub=arguments.hub or None,
            images=arguments.images,
            site=arguments.site,
            cluster_options=arguments.cluster_option,
        )
        return _run(arguments.command, stack, airflow=not arguments.without_airflow)
    except (OSError, PipelineError) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 1


def _run(command: str, stack: Stack, *, airflow: bool) -> int:
    match command:
        case "up":
            stack.up(airflow=airflow)
        case "down":
            stack.down()
        case "status":
            states = stack.status()
            for name, state in states.items():
                print(f"{name:13} {state}")
            if left_over := stack.supervisor.left_over():
                print(f"supervisor    was killed and left {left_over} processes; `make up` or `make down` stops them")
            return 0 if all(state.runs for state in states.values()) else 1
        case _:
            for name, value in stack.client_environment().items():
                print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
