"""Checks tokens before a client sends them: a client that refuses a header prints it, and with it the token."""

from slipway.tasks.contracts.errors import InputError


def header_token(token: str, source: str) -> str:
    """A token without surrounding whitespace.

    Args:
        token: as it was read.
        source: where it came from. Errors name this and never show the token.

    Raises:
        InputError: no header can hold the token.
    """
    stripped = token.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise InputError(
            f"{source} cannot be sent",
            found="a line break, a control character or a character outside ASCII",
            expected="one line of printable ASCII",
            remedy="Set the token again.",
        )
    return stripped
