"""The one way to a terminal: everything that the command prints goes through here, and nobody's text controls it.

A model's answer or a Hub's document may hold sequences that set the clipboard or the title, clear the screen, go back
to a line that was printed before, or reverse the order of characters. Each character stands for itself, so a sequence
that arrives in two pieces is caught as well.
"""

import typer

PICTURES = 0x2400
DELETE = 0x7F
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def _table() -> dict[int, str]:
    """What stands for each character that a terminal obeys: its picture where Unicode has one."""
    kept = {ord("\n"), ord("\t")}
    table = {code: chr(PICTURES + code) for code in range(0x20) if code not in kept} | {DELETE: "\N{SYMBOL FOR DELETE}"}
    c1 = range(0x80, 0xA0)
    bidi = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))  # Unicode, UAX #9, section 2
    surrogates = range(0xD800, 0xE000)
    return table | dict.fromkeys((*c1, *bidi, *surrogates), UNKNOWN)


TABLE = _table()


def printable(text: str) -> str:
    """The text with a visible character in place of each that a terminal would obey. Its length stays."""
    return text.translate(TABLE)


def echo(text: object = "", *, nl: bool = True, err: bool = False, bold: bool = False) -> None:
    """Print a text on stdout or stderr, whoever wrote it."""
    shown = printable(str(text))
    typer.echo(typer.style(shown, bold=True) if bold else shown, nl=nl, err=err)
