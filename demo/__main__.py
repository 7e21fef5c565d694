"""`python -m demo`: run the demo on the stack in `--folder`, which is started if it is down and left running."""

import argparse
import os
import re
import sys
import time
from pathlib import Path

from rich.console import Console

from demo import canary
from demo.canary import CanaryDemo, write_specs
from demo.observers import PodWatch, resident_bytes
from demo.story import SPEC, Demo, DemoError
from demo.timeline import Timeline
from local.private_files import PRIVATE_UMASK
from local.stack import DEFAULT_FOLDER, Stack
from slipway.cli.runs.screens import console_on
from slipway.cli.settings import Settings
from slipway.tasks.adapters.progress import size
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_document

INTERRUPTED = 130
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def main() -> int:
    """Run the demo; 0 if every release did what it should."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="folder of the stack's files")
    parser.add_argument("--canary", action="store_true", help="add a chapter: a canary that fails under real traffic")
    parser.add_argument("--recording", type=Path, help="write what the third chapter prints to this file, as SVG")
    parser.add_argument("--began", type=float, default=time.time(), help="when the command began: seconds since 1970")
    arguments = parser.parse_args()
    os.umask(PRIVATE_UMASK)
    console, timeline = console_on(), Timeline(arguments.began)
    specs = arguments.folder.resolve() / "specs" if arguments.canary else None
    stack = Stack(arguments.folder, specs=specs)
    try:
        if specs:
            write_specs(specs)
        _bring_up(stack, console, timeline)
        os.environ.update(stack.client_environment())
        _run_story(stack, console, specs, timeline, arguments.recording)
    except (DemoError, PipelineError, OSError) as error:
        console.print(f"\ndemo failed: {error}", style="bold red", highlight=False, soft_wrap=True, markup=False)
        console.print(f"The stack keeps running. Its logs are in {stack.folder}; `make down` stops it.", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\ndemo stopped. The stack and any run in progress continue; `make down` stops them.")
        return INTERRUPTED
    memory = resident_bytes(stack.folder)
    used = f", {size(memory)} of memory in the stack's processes" if memory else ""
    console.print()
    console.print(timeline.table())
    console.print(f"every run's times: {timeline.write(stack.folder)}", highlight=False, soft_wrap=True)
    console.print(f"\ndemo passed in {timeline.now():.0f} s{used}", style="bold green")
    return 0


def _bring_up(stack: Stack, console: Console, timeline: Timeline) -> None:
    console.rule("the stack", align="left")
    timeline.mark("the stack begins")

    def say(text: str) -> None:
        console.print(f"{timeline.now():5.1f} s  {text}", highlight=False, soft_wrap=True, markup=False)

    stack.up(say)
    timeline.mark("the stack answers")


def _run_story(stack: Stack, console: Console, specs: Path | None, timeline: Timeline, recording: Path | None) -> None:
    settings = Settings.resolve(os.environ)
    pods = PodWatch(stack.kubeconfig, settings.site().kubernetes.pipeline_namespace)
    with settings.airflow() as airflow, pods:
        demo = Demo(stack, console, settings, airflow, _spec(SPEC), pods, timeline)
        demo.release_a_good_model()
        demo.release_the_same_weights()
        console.record = recording is not None
        refused = demo.refuse_a_damaged_model()
        demo.show_evidence(refused)
        if recording:
            # without the fonts that rich would load from elsewhere
            recording.write_text(FONTS.sub("", console.export_svg(title="make demo")))
            console.record = False
        demo.roll_back_to_the_previous_release()
        if specs:
            fifth = CanaryDemo(stack, console, settings, airflow, _spec(canary.SPEC), pods, timeline, specs)
            fifth.roll_back_a_canary()
        demo.say_where_everything_is()


def _spec(file: Path) -> ReleaseSpec:
    return read_contract(ReleaseSpec, read_document(file), file.name)


if __name__ == "__main__":
    sys.exit(main())
