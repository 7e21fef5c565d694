"""Artifacts: immutable and named by key. An artifact exists once its manifest does."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator

from slipway.tasks.contracts.base import Contract

Stage = Literal["download", "quantize", "build", "assemble", "publish", "adapter"]
STAGES: tuple[Stage, ...] = ("download", "quantize", "build", "assemble", "publish")
"""In the order of the pipeline; each stage reads the ones before it."""
ADAPTER: Stage = "adapter"
"""A LoRA adapter for one release, which it was checked with: no stage of the release itself."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Blake3 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Algorithm = Literal["sha256", "blake3"]

MANIFEST = "manifest.json"


class File(Contract):
    """One file of an artifact."""

    if_invalid = "Rename the file at its source."

    path: str = Field(
        pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$",
        description="relative; only characters that Triton's endpoint-form S3 addresses allow",
    )
    sha256: Sha256
    blake3: Blake3 | None = Field(
        default=None,
        exclude_if=lambda digest: digest is None,  # older pods read what a newer plan marks as used
        description="what readers verify, because it is the faster of the two; absent where no step had the bytes",
    )
    size_bytes: int = Field(ge=0)

    @property
    def algorithm(self) -> Algorithm:
        """What a reader computes of the bytes."""
        return "blake3" if self.blake3 else "sha256"

    @property
    def digest(self) -> str:
        """The hex digest of that algorithm."""
        return self.blake3 or self.sha256

    @property
    def labelled_digest(self) -> str:
        """The same with the algorithm before it, as errors show it."""
        return f"{self.algorithm}:{self.digest}"

    def is_same(self, other: "File") -> bool:
        """Whether both are the same bytes under the same name, whichever digests are known of them."""
        return (self.path, self.sha256, self.size_bytes) == (other.path, other.sha256, other.size_bytes)

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        if any(part in {".", ".."} for part in path.split("/")):
            raise ValueError(f"{path} points outside its artifact")
        return path


class Manifest(Contract):
    """The contents and the origin of an artifact. It is written last; then the artifact exists."""

    stage: Stage
    key: Sha256
    files: tuple[File, ...]
    inputs: dict[Stage, Sha256] = Field(default_factory=dict, description="keys of the artifacts this was made from")
    producer: dict[str, str] = Field(default_factory=dict, description="tool and image versions")
    metrics: dict[str, Any] = Field(default_factory=dict, description="measurements of the stage's output")
    created_at: datetime
    used_at: datetime | None = Field(default=None, description="when a plan last relied on it; absent: never")
    seconds: float = Field(ge=0, description="time the stage took")

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def has_same_files(self, other: "Manifest") -> bool:
        """Whether both list the same bytes under the same names."""
        return len(self.files) == len(other.files) and all(map(File.is_same, self.files, other.files))


class Claim(Contract):
    """In a manifest's place while a step writes the artifact, which does not exist yet."""

    claimed_by: str = Field(description="unique, so that no two claims have the same ETag")
    claimed_at: datetime


class Removal(Contract):
    """In the place of a manifest or of release.json while everything that belongs to it is being deleted.

    It is written before the first deletion and deleted last, so a removal that was cut short never leaves a manifest
    that lists missing files.
    """

    removed_by: str = Field(description="unique for each removal")
    removed_at: datetime


FOLDERS = frozenset({"artifacts", "channels", "datasets", "network", "releases", "requests", "retention"})
"""Everything that Slipway stores is below one of these, in the root of its Layout."""


class Layout:
    """Addresses in the object store. Pure: it only joins names."""

    def __init__(self, root: str) -> None:
        """`root` is `s3://bucket[/prefix]` without a trailing slash."""
        self.root = root

    def holds(self, uri: str) -> bool:
        """Whether an address is one of FOLDERS, or below one."""
        before, _, path = uri.partition(f"{self.root}/")
        return not before and path.partition("/")[0] in FOLDERS

    def artifacts(self) -> str:
        """Prefix of all artifacts."""
        return f"{self.root}/artifacts/"

    def artifact(self, stage: Stage, key: str) -> str:
        """Prefix of an artifact."""
        return f"{self.artifacts()}{stage}/{key}"

    def releases(self) -> str:
        """Prefix of all releases, plans and results."""
        return f"{self.root}/releases/"

    def requests(self) -> str:
        """Prefix of all request documents."""
        return f"{self.root}/requests/"

    def retention_result(self, run: str) -> str:
        """The result of a run of retention."""
        return f"{self.retention(run)}result.json"

    def retention(self, run: str = "") -> str:
        """Prefix of what runs of retention report, or of one run's report."""
        return f"{self.root}/retention/{run}/" if run else f"{self.root}/retention/"

    def release(self, name: str, release_id: str, named: str = "") -> str:
        """A document of the release: its release.json, or the file or address `named` that a channel leads to."""
        return f"{self.root}/releases/{name}/{release_id}/{named.rpartition('/')[2] or 'release.json'}"

    def releases_again(self, name: str, release_id: str, run: str) -> tuple[str, str]:
        """Both addresses of a previous release that a run plans again; it takes the second if it promoted the first.

        No run's identity begins with a dash, so that no other run has either address.
        """
        first, second = f"release-{run}.json", f"release--{run}.json"
        return self.release(name, release_id, first), self.release(name, release_id, second)

    def result(self, name: str, release_id: str, step: str) -> str:
        """The latest result of a step of the release."""
        return f"{self.root}/releases/{name}/{release_id}/results/{step}.json"

    def network(self, product: str) -> str:
        """The last measurement of the network between nodes with this GPU product that passed."""
        return f"{self.root}/network/{product}.json"

    def evidence(self, name: str, release_id: str, run: str) -> str:
        """Prefix of one run's measurements; no other run overwrites them."""
        return f"{self.root}/releases/{name}/{release_id}/evidence/{run}"

    def plan(self, name: str, run: str) -> str:
        """The result of a run's plan step, which runs before there is a release id."""
        return f"{self.root}/releases/{name}/plans/{run}.json"

    def request(self, name: str, run: str, step: str) -> str:
        """The request of a run for plan, revert or drill: text that a person wrote must not be in a pod's command."""
        return f"{self.root}/requests/{name}/{run}/{step}.json"

    def dataset(self, digest: str) -> str:
        """A copy of a pinned dataset, as a JSON list."""
        return f"{self.root}/datasets/{digest.replace(':', '-')}.json"

    def checked(self, name: str) -> str:
        """When a run last found that the live release is still what its spec asks for."""
        return f"{self.root}/releases/{name}/checked.json"

    def revert(self, name: str, run: str) -> str:
        """The result of a run that restored a previous release."""
        return f"{self.root}/releases/{name}/reverts/{run}.json"

    def adapters(self, name: str, release_id: str) -> str:
        """What adapters a release serves beside those that it was published with."""
        return f"{self.root}/releases/{name}/{release_id}/adapters.json"

    def adapters_result(self, name: str, run: str, step: str) -> str:
        """The result of a step of a run that changed a live model's adapters."""
        return f"{self.root}/releases/{name}/adapters/{run}-{step}.json"

    def drill(self, name: str, run: str) -> str:
        """The result of a drill."""
        return f"{self.root}/releases/{name}/drills/{run}.json"

    def channels(self) -> str:
        """Prefix of all models' channels."""
        return f"{self.root}/channels/"

    def channel(self, name: str) -> str:
        """The document that names the live release."""
        return f"{self.channels()}{name}.json"
