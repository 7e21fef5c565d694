"""How many bytes a plan moves: over the network, within the object store, and to each serving pod. Pure arithmetic."""

from collections.abc import Iterable

from pydantic import Field

from tasks.contracts.artifact import File
from tasks.contracts.base import Contract
from tasks.contracts.kubernetes_text import ReleaseId
from tasks.contracts.plan import Plan

SHA256 = "sha256:"


class Repository(Contract):
    """The size of what a serving pod fetches before it starts."""

    size_bytes: int = Field(ge=0)
    of: ReleaseId | None = Field(
        default=None, description="the earlier release that it was estimated from; null: its files are stored"
    )


class BytesToMove(Contract):
    """What download and the serving pods transfer."""

    download_bytes: int = Field(ge=0, description="from the Hub to the object store")
    download_files: int = Field(ge=0)
    copied_bytes: int = Field(ge=0, description="within the object store, from downloads of earlier releases")
    copied_files: int = Field(ge=0)
    repository: Repository | None = Field(
        default=None, description="what each serving pod fetches; null: unknown before build has run"
    )


def bytes_to_move(plan: Plan, stored: Iterable[File] = (), repository: Repository | None = None) -> BytesToMove:
    """What the plan moves if the object store has the files `stored` in other downloads.

    A file is found there by its sha256. The Hub lists small files without one, and these are always downloaded.
    """
    files = plan.files if "download" in plan.missing else ()
    known = {(f"{SHA256}{file.sha256}", file.size_bytes) for file in stored}
    sizes = [file.size_bytes for file in files]
    copied = [file.size_bytes for file in files if (file.digest, file.size_bytes) in known]
    return BytesToMove(
        download_bytes=sum(sizes) - sum(copied),
        download_files=len(sizes) - len(copied),
        copied_bytes=sum(copied),
        copied_files=len(copied),
        repository=repository,
    )
