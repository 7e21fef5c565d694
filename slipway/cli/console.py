"""The console for what terminal.echo cannot draw: tables, rules and styles."""

import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from typing_extensions import override

from slipway.tasks.contracts.redaction import printable

LOG_WIDTH = 160


class _Printable(Console):
    """A console on which only its own code moves the cursor or sets a style; texts are shown as they are."""

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def console_on(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; without a terminal and COLUMNS, wide enough for every table."""
    unknown = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    width = LOG_WIDTH if unknown and not stderr else None
    return _Printable(width=width, stderr=stderr, markup=False, emoji=False, highlight=False)
