"""`python -m demo`: run the demo on the stack in `--folder`, which is started if it is down and left running."""

import argparse
import importlib
import os
import sys
import threading
import time
from pathlib import Path

from rich.console import Console

from demo.timeline import Timeline
from local.private_files import PRIVATE_UMASK
from local.stack import DEFAULT_FOLDER, Stack
from slipway.cli.console import console_on
from slipway.tasks.contracts.errors import PipelineError

INTERRUPTED = 130


def main() -> int:
    """Run the demo; 0 if every release did what it should."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="folder of the stack's files")
    parser.add_argument("--canary", action="store_true", help="add a chapter: a canary that fails under real traffic")
    parser.add_argument("--recording", type=Path, help="write what the fourth chapter prints to this file, as SVG")
    parser.add_argument("--began", type=float, default=time.time(), help="when the command began: seconds since 1970")
    arguments = parser.parse_args()
    os.umask(PRIVATE_UMASK)
    console, timeline = console_on(), Timeline(arguments.began)
    specs = arguments.folder.resolve() / "specs" if arguments.canary else None
    stack = Stack(arguments.folder, specs=specs)
    try:
        _bring_up(stack, console, timeline, specs)
        os.environ.update(stack.client_environment())
        from demo import chapters  # noqa: PLC0415 - see _bring_up

        chapters.tell(stack, console, specs, timeline, arguments.recording)
    except (PipelineError, OSError) as error:
        console.print(f"\ndemo failed: {error}", style="bold red", highlight=False, soft_wrap=True, markup=False)
        console.print(f"The stack keeps running. Its logs are in {stack.folder}; `make down` stops it.", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\ndemo stopped. The stack and any run in progress continue; `make down` stops them.")
        return INTERRUPTED
    return 0


def _bring_up(stack: Stack, console: Console, timeline: Timeline, specs: Path | None) -> None:
    console.rule("the stack", align="left")
    timeline.mark("the stack begins")
    # five CPU seconds when nothing is compiled yet: the services do not wait for them
    threading.Thread(target=importlib.import_module, args=("demo.chapters",), daemon=True).start()
    if specs:
        from demo.canary import write_specs  # noqa: PLC0415 - as above

        write_specs(specs)

    def say(text: str) -> None:
        console.print(f"{timeline.now():5.1f} s  {text}", highlight=False, soft_wrap=True, markup=False)

    stack.up(say)
    timeline.mark("the stack answers")


if __name__ == "__main__":
    sys.exit(main())
