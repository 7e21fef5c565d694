"""Repeats what a command shows until a person stops it: in place on a terminal, as plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live

Parts = Sequence[RenderableType]


def watch(
    console: Console, read: Callable[[], Parts], every_s: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show what `read` returns, and again every `every_s` seconds, until Ctrl-C.

    A terminal shows the newest state in place. Anything else, such as a file or a pipe, gets it once, and again only
    when its text has changed.
    """
    try:
        if console.is_terminal:
            _in_place(console, read, every_s, sleep)
        else:
            _when_changed(console, read, every_s, sleep)
    except KeyboardInterrupt:
        return


def _in_place(console: Console, read: Callable[[], Parts], every_s: float, sleep: Callable[[float], None]) -> None:
    with Live(Group(*read()), console=console, auto_refresh=False) as live:
        while True:
            sleep(every_s)
            live.update(Group(*read()), refresh=True)


def _when_changed(console: Console, read: Callable[[], Parts], every_s: float, sleep: Callable[[float], None]) -> None:
    shown = None
    while True:
        parts = read()
        with console.capture() as captured:
            for part in parts:
                console.print(part, soft_wrap=True)
        if (text := captured.get()) != shown:
            console.print(text, end="", soft_wrap=True)
            shown = text
        sleep(every_s)
