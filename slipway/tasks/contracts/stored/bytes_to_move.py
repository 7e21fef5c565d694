"""How many bytes a plan moves: over the network, within the object store, and to each serving pod. Pure arithmetic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.kubernetes_text import ReleaseId
from slipway.tasks.contracts.stored.artifact import File
from slipway.tasks.contracts.stored.plan import HubFile, Plan

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
    copied_bytes: int = Field(ge=0, description="within the object store, from other downloads")
    copied_files: int = Field(ge=0)
    kept_bytes: int = Field(
        default=0, ge=0, description="stored already by a download of these files that has not finished"
    )
    kept_files: int = Field(default=0, ge=0)
    upper_bound: bool = Field(
        default=False,
        description="download_bytes may be fewer: the store has more downloads than plan reads, and download finds "
        "files of theirs",
    )
    repository: Repository | None = Field(
        default=None, description="what each serving pod fetches; null: unknown before build has run"
    )


@dataclass(frozen=True)
class StoredFiles:
    """Files in the object store that a download need not bring again."""

    elsewhere: Sequence[File] = ()
    """Files of other downloads."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the files that lie in the place of the plan's own download, which does not exist yet, by path."""
    complete: bool = True
    """Whether `elsewhere` has the files of every other download."""


def bytes_to_move(plan: Plan, stored: StoredFiles, repository: Repository | None = None) -> BytesToMove:
    """What the plan moves if the object store has these files.

    A file is found there by its sha256. The Hub lists small files without one, and these are always downloaded.
    """
    files = plan.files_by_path if "download" in plan.missing else {}
    stored_files = {(f"{SHA256}{file.sha256}", file.size_bytes) for file in stored.elsewhere}
    kept, copied, brought = [], [], []
    for path, file in files.items():
        if file.digest.startswith(SHA256) and stored.kept.get(path) == file.size_bytes:
            kept.append(file)
        elif (file.digest, file.size_bytes) in stored_files:
            copied.append(file)
        else:
            brought.append(file)
    return BytesToMove(
        download_bytes=_size(brought),
        download_files=len(brought),
        copied_bytes=_size(copied),
        copied_files=len(copied),
        kept_bytes=_size(kept),
        kept_files=len(kept),
        upper_bound=not stored.complete and any(file.digest.startswith(SHA256) for file in brought),
        repository=repository,
    )


def _size(files: Iterable[HubFile]) -> int:
    return sum(file.size_bytes for file in files)
