"""Errors raised on purpose. The class tells Airflow what to do; the text tells a person what to do.

    PipelineError           70  anything deliberate that is neither of the two below
    ├── InputError          65  wrong spec, artifact or request: a retry cannot help
    │   ├── DigestMismatchError
    │   └── ConflictError   65  another release holds what this one needs
    └── UnavailableError    75  a dependency did not answer: a retry may help

Exit codes are those of sysexits.h: EX_DATAERR 65, EX_SOFTWARE 70, EX_TEMPFAIL 75.
"""

from typing import ClassVar


class PipelineError(Exception):
    """Base of every deliberate error; a step's process ends with `exit_code`."""

    exit_code: ClassVar[int] = 70


class InputError(PipelineError):
    """Wrong spec, request or artifact. A retry cannot help: Airflow fails the task at once."""

    exit_code = 65


class UnavailableError(PipelineError):
    """A dependency did not answer. A retry may help: Airflow retries with back-off."""

    exit_code = 75


class ConflictError(InputError):
    """Another release holds what this one needs."""


class DigestMismatchError(InputError):
    """Bytes differ from what was announced for them."""

    def __init__(self, what: str, *, expected: str, actual: str, do: str) -> None:
        super().__init__(f"{what}: its digest is {actual[:19]}, announced was {expected[:19]}. {do}")
        self.what, self.expected, self.actual = what, expected, actual
