"""Pages that the command writes as files."""

import os
from pathlib import Path

from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError


def write_page(path: Path, page: str) -> None:
    """Write a page and say so; a pipe that nobody reads is an error instead of a wait.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        file_descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
        os.set_blocking(file_descriptor, True)  # a pipe with a reader takes what the reader has room for
        with open(file_descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(page.encode(errors="replace"))
    except OSError as error:
        raise InputError(f"the page cannot be written to {path}", found=error.strerror or error) from error
    echo(f"wrote {path}", err=True)
