"""Errors raised on purpose. The class tells Airflow what to do; the fields tell a person what to do.

    PipelineError           70  anything deliberate that is neither of the two below
    ├── InputError          65  wrong spec, artifact or request: a retry cannot help
    │   ├── DigestMismatchError
    │   ├── SignatureError
    │   └── ConflictError   65  another release holds what this one needs
    └── UnavailableError    75  a dependency did not answer: a retry may help

Exit codes are those of sysexits.h: EX_DATAERR 65, EX_SOFTWARE 70, EX_TEMPFAIL 75.
"""

import traceback
from pathlib import Path
from typing import ClassVar

from slipway.tasks.contracts.redaction import bounded

DIGEST_CHARS = 19
"""Length of a digest in a message: its algorithm and the first 12 hex digits."""
UNEXPECTED_CHARS = 200


class PipelineError(Exception):
    """Base of every deliberate error; a step's process ends with `exit_code`.

    Args:
        what: the subject and what is wrong with it, without a full stop: `engine.gpu NVIDIA-L4 is not at site eks`.
        found: the value or state that was found.
        expected: the value or state that would have been right.
        remedy: what the reader should do: one or more whole sentences.

    The text is `<what>: found <found>, expected <expected>. <remedy>`, with the parts that are given. It is bounded
    here, once, because it reaches logs, databases and termination messages.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, what: object = "", *, found: object = "", expected: object = "", remedy: str = "") -> None:
        self.what, self.found, self.expected, self.remedy = str(what), str(found), str(expected), remedy
        super().__init__(bounded(_joined(self.what, self.found, self.expected, self.remedy)))


def _joined(what: str, found: str, expected: str, remedy: str) -> str:
    named = (("found", found), ("expected", expected))
    details = ", ".join(f"{name} {value}" for name, value in named if value)
    statement = f"{what}: {details}" if details else what
    return f"{statement}. {remedy}" if remedy else statement


class InputError(PipelineError):
    """Wrong spec, request or artifact. A retry cannot help: Airflow fails the task at once."""

    exit_code = 65


class UnavailableError(PipelineError):
    """A dependency did not answer. A retry may help: Airflow retries with back-off."""

    exit_code = 75


class ConflictError(InputError):
    """Another release holds what this one needs."""


class DigestMismatchError(InputError):
    """The bytes do not match their expected digest."""

    def __init__(self, what: str, *, found: str, expected: str, remedy: str) -> None:
        super().__init__(
            f"{what} has the wrong digest", found=found[:DIGEST_CHARS], expected=expected[:DIGEST_CHARS], remedy=remedy
        )


class SignatureError(InputError):
    """A release is not signed by a key that the site accepts, or not as it is stored."""


def unexpected(error: Exception) -> str:
    """Describe an error that is not one of ours, with the line that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"unexpected {type(error).__name__} in {where}: {str(error)[:UNEXPECTED_CHARS]}"
