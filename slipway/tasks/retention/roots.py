"""Which releases must stay whatever the policy says: those that a channel or a workload names."""

from pathlib import PurePosixPath

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.workload_state import LEADER_WORKER_SET
from slipway.tasks.adapters.store.heads import removal_in
from slipway.tasks.adapters.store.object_store import StoredObject
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import ADAPTER
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release

RELEASE_URI = "slipway.dev/release-uri"
"""Annotation of a workload with the URI of its release; of a group's workload, with `.<model>` at its end."""
WORKLOADS = ("Deployment", LEADER_WORKER_SET)
Names = dict[str, dict[str, str]]
"""By model: release ids, and why each stays."""


def named(documents: ReleaseDocuments, cluster: Cluster) -> Names:
    """Releases that channels name as live or previous, and deployed ones.

    Raises:
        InputError: a channel cannot be read, so it is not known what it names.
        UnavailableError: the object store or the cluster does not answer.
    """
    store, layout = documents.store, documents.layout
    names = _deployed(cluster, layout.releases())
    for item in store.list(layout.channels()):
        channel = read_contract_json(Channel, store.read_bytes(item.uri), item.uri)
        of_model = names.setdefault(PurePosixPath(item.uri).stem, {})
        for entry in channel.previous:
            of_model[entry.release_id] = "previous in its channel"
        if channel.live:
            of_model[channel.live.release_id] = "live"
    return names


def needed_keys(item: StoredObject, documents: ReleaseDocuments) -> set[str] | None:
    """Prefixes of the artifacts that the release with this release.json consists of, and of adapters added to it.

    None if it is a removal.

    Raises:
        InputError: the document cannot be read, so it is not known what the release needs.
    """
    data = documents.store.read_bytes(item.uri)
    if removal_in(data, item.uri):
        return None
    release = read_contract_json(Release, data, item.uri)
    adapters = documents.adapters(release.spec.name, release.id)
    keys = [*((stage, planned.key) for stage, planned in release.plan.stages.items())]
    keys += [(ADAPTER, key) for key in adapters.needed]
    return {f"{documents.layout.artifact(stage, key)}/" for stage, key in keys}


def check_present(names: Names, present: set[str]) -> None:
    """Check that every release that is named has its release.json.

    Raises:
        InputError: one has none, so its artifacts are not known and would be deleted.
    """
    missing = sorted(release_id for model in names.values() for release_id in model if release_id not in present)
    if missing:
        raise InputError(
            f"release {missing[0]} is live, previous or deployed, and its release.json is missing; nothing was deleted",
            found=f"{len(missing)} such releases",
            remedy="Restore release.json from a back-up (slipway import), or release the model again.",
        )


def _deployed(cluster: Cluster, ours: str) -> Names:
    names = Names()
    for kind in WORKLOADS:
        for item in cluster.find(kind, {}):
            annotations = item["metadata"].get("annotations") or {}
            for name, uri in annotations.items():
                if name.startswith(RELEASE_URI) and uri.startswith(ours):
                    *_, model, release_id, _ = uri.split("/")
                    names.setdefault(model, {})[release_id] = "deployed"
    return names
