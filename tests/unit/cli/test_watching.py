"""`slipway status --watch`: in place on a terminal, and elsewhere a line for each change."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from slipway.cli.runs.watch import watch


def looks(*texts):
    """What each look sees; then the person stops it."""
    rest = list(texts)
    return lambda: [Text(line) for line in rest.pop(0).splitlines()]


def stopped_after(count):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == count:
            raise KeyboardInterrupt

    return sleep, slept


def shown(*texts, terminal=False):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    sleep, slept = stopped_after(len(texts))
    watch(console, looks(*texts), 7.0, sleep)
    return out.getvalue(), slept


def test_a_pipe_gets_the_state_once_and_again_when_it_has_changed():
    text, slept = shown("live 1", "live 1", "live 2\nrun 9", "live 2\nrun 9", "live 1")

    assert text == "live 1\nlive 2\nrun 9\nlive 1\n"
    assert slept == [7.0] * 5


def test_a_terminal_shows_the_newest_state_in_place():
    text, _ = shown("live 1", "live 2", terminal=True)

    assert text.index("live 1") < text.index("\x1b[2K") < text.index("live 2")


@pytest.mark.parametrize("terminal", [True, False])
def test_an_error_that_is_not_ours_is_not_hidden(terminal):
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watch(Console(file=io.StringIO(), force_terminal=terminal), broken, 1.0)
