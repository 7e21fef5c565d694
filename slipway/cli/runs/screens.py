"""Draws a run as it is followed: a live table on a terminal, one line per change elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from slipway.cli.runs.follow import RunView, Screen, StepView

STYLES = {
    "done": "green",
    "stored": "cyan",
    "running": "yellow",
    "approve?": "bold magenta",
    "retrying": "yellow",
    "failed": "bold red",
    "skipped": "dim",
    "not run": "dim",
    "waiting": "dim",
    "queued": "dim",
}
SILENT = frozenset({"waiting", "queued"})
NEVER_RAN = ("skipped", "not run")
"""Steps in these states share a line at the end."""
BAR_WIDTH = 24


class Lines:
    """Prints a line whenever a step's state changes, for CI logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, str] = {}

    def show(self, view: RunView) -> None:
        """Print the changes since the last view."""
        changed = [step for step in view.steps if self._shown.get(step.name) != step.state]
        self._shown = {step.name: step.state for step in view.steps}
        for step in changed:
            if step.state not in SILENT and step.state not in NEVER_RAN:
                self._console.print(self._line(step), soft_wrap=True)
        for state in NEVER_RAN if view.run.ended else ():
            if names := [step.name for step in view.steps if step.state == state]:
                line = f"{time.strftime('%H:%M:%S')}  {state}: {', '.join(names)}"
                self._console.print(line, soft_wrap=True)

    def _line(self, step: StepView) -> Text:
        seconds = "" if step.seconds is None or step.state == "running" else f"{step.seconds:.1f} s"
        line = Text(f"{time.strftime('%H:%M:%S')}  {step.name:<11} ")
        line.append(f"{step.state:<8}", STYLES.get(step.state, ""))
        line.append(f" {seconds:>8}  {step.text}")
        line.rstrip()
        return line


class LiveTable:
    """A table that is redrawn in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, view: RunView) -> None:
        """Draw the whole view."""
        self._live.update(steps_table(view))


@contextmanager
def screen_on(console: Console) -> Iterator[Screen]:
    """The screen for where `console` writes to."""
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, refresh_per_second=8, transient=False) as live:
        yield LiveTable(live)


def steps_table(view: RunView) -> RenderableType:
    """A table of all steps with state, duration and one line of text."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for step in view.steps:
        style = STYLES.get(step.state, "")
        seconds = "" if step.seconds is None else f"{step.seconds:.1f} s"
        name = Text(step.name, "dim" if style == "dim" else "")
        table.add_row(name, _state(step, style), seconds, _detail(step))
    if view.run.state == "queued":
        return Group(Text("queued: a model has one run at a time", "dim"), table)
    return table


def _state(step: StepView, style: str) -> RenderableType:
    return Spinner("dots", Text(step.state, style)) if step.state == "running" else Text(step.state, style)


def _detail(step: StepView) -> RenderableType:
    if step.progress is None:
        return Text(step.text)
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=1.0, completed=step.progress.share, width=BAR_WIDTH), Text(step.text))
    return line
