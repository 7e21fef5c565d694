"""Faults that tests switch on and off while the server runs. This decides which request gets one, and sends nothing."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Request = Literal["get", "head", "api"]


class Fault(BaseModel):
    """A fault; the body of `POST /_faults`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repo: str = Field(description="`org/name` or `datasets/org/name`; a glob")
    file: str = Field(default="*", description="glob over the path in the repository; ignored for `api`")
    kind: Literal["slow", "cut", "corrupt", "status"]
    on: Sequence[Request] = Field(
        default=("get", "head"), description="file body, file metadata, or the JSON API; all but `status` need `get`"
    )
    bytes_per_s: int = Field(default=0, ge=0, description="slow: rate of the body")
    after_bytes: int = Field(default=0, ge=0, description="cut: body bytes sent first; corrupt: offset in the file")
    status: int = Field(default=503, ge=400, le=599)
    times: int | None = Field(default=None, ge=1, description="how many requests get the fault; null: all until DELETE")

    @model_validator(mode="after")
    def _slow_has_a_rate(self) -> Self:
        if self.kind == "slow" and not self.bytes_per_s:
            raise ValueError("slow needs bytes_per_s >= 1")
        return self

    def hits(self, repo: str, file: str, request: Request) -> bool:
        """Whether this fault applies to the request."""
        if request not in (self.on if self.kind == "status" else ("get",)):
            return False
        return fnmatchcase(repo, self.repo) and (request == "api" or fnmatchcase(file, self.file))


class Faults:
    """The active faults, oldest first."""

    def __init__(self) -> None:
        self._left: list[tuple[Fault, int | None]] = []

    def add(self, fault: Fault) -> None:
        """Add a fault after the active ones."""
        self._left.append((fault, fault.times))

    def clear(self) -> None:
        """Remove all faults."""
        self._left.clear()

    def take(self, repo: str, file: str, request: Request) -> Fault | None:
        """Return the oldest fault that applies to this request, and count it as used once."""
        for index, (fault, times) in enumerate(self._left):
            if fault.hits(repo, file, request):
                if times is not None:
                    self._left[index : index + 1] = [(fault, times - 1)] if times > 1 else []
                return fault
        return None
