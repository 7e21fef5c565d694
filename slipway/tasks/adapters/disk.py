"""Turns errors of the local disk into Slipway's."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from slipway.tasks.contracts.errors import InputError, UnavailableError

NAME_QUOTED = 80
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Translate errors of writing the file `path`. Translate network errors first: they are OSErrors too."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise InputError(
                f"the disk is full, so that {path[-NAME_QUOTED:]} cannot be written",
                remedy="Raise scratch of the pod's shape in the site file; if other pods fill the node's disk, free it "
                "or move them.",
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                f"the name of file {path[:NAME_QUOTED]}... is longer than a file system allows",
                found=f"{len(path)} characters",
                remedy="Rename the file in its repository.",
            ) from error
        raise UnavailableError(
            f"{path[-NAME_QUOTED:]} cannot be written: {error.strerror or error}",
            remedy="Run the step again: another node may have a working disk.",
        ) from error
