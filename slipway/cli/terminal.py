"""The one way to a terminal: everything that the command prints goes through here, and nobody's text controls it.

A model's answer or a Hub's document may hold sequences that set the clipboard or the title, clear the screen, go back
to a line that was printed before, or reverse the order of characters. Each character stands for itself, so a sequence
that arrives in two pieces is caught as well.
"""

import typer

from slipway.tasks.contracts.redaction import printable


def echo(text: object = "", *, nl: bool = True, err: bool = False, bold: bool = False, dim: bool = False) -> None:
    """Print a text on stdout or stderr, whoever wrote it. Only a terminal shows it bold or dim."""
    shown = printable(str(text))
    typer.echo(typer.style(shown, bold=bold or None, dim=dim or None) if bold or dim else shown, nl=nl, err=err)
