"""The demo's chapters in their order, on a stack that answers."""

import os
import re
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from demo import canary
from demo.canary import CanaryDemo
from demo.observers import PodWatch, resident_bytes
from demo.story import SPEC, Demo
from demo.timeline import Timeline
from local.stack import Stack
from slipway.cli.settings import Settings
from slipway.tasks.adapters.progress import size
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_document

FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def tell(stack: Stack, console: Console, specs: Path | None, timeline: Timeline, recording: Path | None) -> None:
    """Run every chapter, and say where the time went.

    Args:
        stack: it answers, and its addresses are in the environment's variables.
        console: prints the story.
        specs: where Airflow reads specs if the chapter with a canary is told too.
        timeline: gets the times of every run.
        recording: the file for the fourth chapter as it was printed, as SVG.

    Raises:
        DemoError: a release did not do what it should.
    """
    settings = Settings.resolve(os.environ)
    pods = PodWatch(stack.kubeconfig, settings.site().kubernetes.pipeline_namespace)
    with settings.airflow() as airflow, pods:
        demo = Demo(stack, console, settings, airflow, _spec(SPEC), pods, timeline)
        demo.release_a_good_model()
        demo.release_the_same_weights()
        with ExitStack() as clients:
            traffic, rolled_back = demo.roll_back_to_the_previous_release(clients)
            console.record = recording is not None
            refused = demo.refuse_a_damaged_model(clients, traffic, rolled_back)
        demo.show_evidence(refused)
        if recording:
            # without the fonts that rich would load from elsewhere
            recording.write_text(FONTS.sub("", console.export_svg(title="make demo")))
            console.record = False
        if specs:
            fifth = CanaryDemo(stack, console, settings, airflow, _spec(canary.SPEC), pods, timeline, specs)
            fifth.roll_back_a_canary()
        demo.say_where_everything_is()
    console.print()
    console.print(timeline.table())
    console.print(f"every run's times: {timeline.write(stack.folder)}", highlight=False, soft_wrap=True)
    memory = resident_bytes(stack.folder)
    used = f", {size(memory)} of memory in the stack's processes" if memory else ""
    console.print(f"\ndemo passed in {timeline.now():.0f} s{used}", style="bold green")


def _spec(file: Path) -> ReleaseSpec:
    return read_contract(ReleaseSpec, read_document(file), file.name)
