"""What a step works with: the site, the adapters to the outside, and a scratch folder."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.dataset_store import DatasetStore
from slipway.tasks.adapters.store.evidence_folder import EvidenceFolder
from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout, Manifest
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:  # the serving image has neither client, and its steps need neither
    from slipway.tasks.adapters.hub.hub import Hub
    from slipway.tasks.adapters.kube.kube import Cluster
    from slipway.tasks.adapters.load.served_traffic import ServedTraffic
    from slipway.tasks.adapters.sign.signatures import Signatures, Signer

GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """What a step did: one line for a person, and values for later steps and the UI."""

    summary: str
    data: dict[str, Any]
    stored: bool = False


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written below `folder`."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Workspace:
    """The surroundings of one step. `scratch` is empty at first and is removed when the step has ended."""

    site: Site
    store: ObjectStore
    clock: Clock
    scratch: Path
    root: Path
    connect_hub: "Callable[[], Hub]"
    free_bytes: Callable[[Path], int] = field(default=free_bytes)
    dag_run: str = ""
    """The Airflow run that started the step; empty for one that was started by hand."""
    ended_holders: Mapping[str, str] = field(default_factory=dict)
    """Leases whose holder has ended according to Airflow: name, and the resource version at which it was looked up."""

    signing_key: str = field(default="", repr=False)
    """The private key that publish signs with, in PEM; empty in every other step, and where a service has the key."""
    release_uri: str = ""
    """Address of the document of the step's release; empty: its release.json."""
    api_key: str = field(default="", repr=False)
    """The key that steps send to models; empty where the site wants none."""

    @property
    def layout(self) -> Layout:
        """Addresses of everything in the store."""
        return Layout(self.site.object_store.root)

    @property
    def artifacts(self) -> ArtifactStore:
        """The site's artifacts."""
        return ArtifactStore(self.store, self.layout, self.clock)

    @property
    def documents(self) -> ReleaseDocuments:
        """Channels, releases and results of steps."""
        return ReleaseDocuments(self.store, self.layout)

    @property
    def datasets(self) -> DatasetStore:
        """Datasets that plan stored."""
        return DatasetStore(self.store, self.layout)

    def evidence(self, release: Release, run: str | None = None) -> EvidenceFolder:
        """What a run recorded of a release: the run that planned it, unless another one is named."""
        return EvidenceFolder(self.store, self.layout.evidence(release.spec.name, release.id, run or release.plan.run))

    @property
    def signatures(self) -> "Signatures | None":
        """The signatures of published artifacts; None where the site neither signs nor verifies."""
        if self.site.signing is None:
            return None
        from slipway.tasks.adapters.sign.signatures import (
            Signatures,  # images that only make artifacts lack its package
        )

        return Signatures(self.store, self.layout, self.site.signing.public_keys)

    @property
    def signer(self) -> "Signer | None":
        """What publish signs with; None where this process has no key.

        Raises:
            InputError: the key cannot sign.
        """
        if self.site.signing and self.site.signing.kms_key:
            from slipway.tasks.adapters.sign.kms import KmsSigner

            return KmsSigner(self.site.signing.kms_key)
        if not self.signing_key:
            return None
        from slipway.tasks.adapters.sign.signatures import KeySigner

        return KeySigner(self.signing_key)

    def is_servable(self, release_id: str, published: Manifest) -> bool:
        """Whether serving pods would start a published artifact; if not, publish signs it."""
        return self.signatures is None or self.signatures.is_signed(release_id, published)

    @property
    def templates(self) -> Path:
        """Templates of Triton repositories, by engine kind."""
        return self.root / "model_repository_templates"

    @property
    def manifests(self) -> Path:
        """Kubernetes manifests and their templates."""
        return self.root / "k8s_manifests"

    @cached_property
    def hub(self) -> "Hub":
        """The site's Hub."""
        return self.connect_hub()

    def cluster(self) -> "Cluster":
        """A new connection to the site's cluster."""
        from slipway.tasks.adapters.kube.kube import Cluster

        return Cluster.connect(self.site, api_key=self.api_key)

    def traffic(self, cluster: "Cluster", model: str, metrics_port: int, front_port: int) -> "ServedTraffic":
        """What the pods of a model's releases serve."""
        from slipway.tasks.adapters.load.served_traffic import ServedTraffic

        return ServedTraffic(cluster, model, metrics_port, front_port)

    def folder(self, name: str) -> Path:
        """Create an empty folder below scratch."""
        folder = self.scratch / name
        folder.mkdir(parents=True)
        return folder

    def require_space(self, size_bytes: int, purpose: str) -> None:
        """Refuse work that would run out of disk space midway.

        Raises:
            InputError: scratch has less than `size_bytes` left.
        """
        free = self.free_bytes(self.scratch)
        if free < size_bytes:
            raise InputError(
                f"scratch has too little space for {purpose}",
                found=f"{free / GIB:.2f} GiB free",
                expected=f"{size_bytes / GIB:.2f} GiB",
                remedy=f"Raise scratch of the pod's shape in the file of site {self.site.name}.",
            )
