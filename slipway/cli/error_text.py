"""Prints errors so that the remedy stands out: on a line of its own, on stderr. stdout stays readable for programs."""

import errno

from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
QUOTED_CHARS = 256


def deliberate(error: Exception) -> PipelineError:
    """The error of a command, as one with fields: also one that the command did not expect."""
    if isinstance(error, PipelineError):
        return error
    message = " ".join(str(error).split())[:QUOTED_CHARS]
    if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
        return UnavailableError(
            f"{error.filename or 'the output'} cannot be read or written",
            found=error.strerror or message,
            remedy="Make room on the disk, and run the command again.",
        )
    if isinstance(error, ConnectionError | TimeoutError):
        return UnavailableError("a connection failed", found=message or type(error).__name__, remedy="Try again.")
    if isinstance(error, OSError):
        return InputError(
            f"{error.filename or 'a file'} cannot be used",
            found=error.strerror or message or type(error).__name__,
            remedy="Check the path and its permissions.",
        )
    if isinstance(error, MemoryError):
        return InputError(
            "the input or an answer does not fit into memory", remedy="Check what is read, and from where."
        )
    return PipelineError(
        "unexpected error",
        found=f"{type(error).__name__}: {message}",
        remedy="Report it, with the traceback that SLIPWAY_TRACEBACK=1 prints.",
    )


def parts(error: PipelineError) -> tuple[str, str]:
    """What is wrong, and what to do; the second is empty if the error names no remedy or its text was cut."""
    text = str(error)
    if not error.remedy or not text.endswith(error.remedy):
        return text, ""
    return text.removesuffix(error.remedy).rstrip(), error.remedy


def print_error(error: PipelineError, prefix: str = "") -> None:
    """Print an error on stderr; on a terminal the remedy is bold."""
    statement, remedy = parts(error)
    echo(f"{prefix}{statement}", err=True)
    if remedy:
        echo(f"  → {remedy}", err=True, bold=True)
