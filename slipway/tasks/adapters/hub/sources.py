"""Makes one Hub, as steps see it, of the Hub itself, folders of an object store or a volume, and MLflow's registry."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from typing_extensions import override

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.hub.folders import ObjectStoreFolders
from slipway.tasks.adapters.hub.hub import Hub, HuggingFaceHub
from slipway.tasks.adapters.hub.mlflow_models import MlflowModels
from slipway.tasks.adapters.hub.reading import ModelHub
from slipway.tasks.adapters.hub.volumes import VolumeFolders
from slipway.tasks.adapters.store.object_store import ByteSource, ObjectStore
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import MLFLOW_TOKEN_VARIABLE, Site
from slipway.tasks.contracts.spec_fields import VOLUME_VARIABLE
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile, Source

R = TypeVar("R")


class Sources(Hub):
    """A Hub whose repositories may also be folders, and versions of registered models, by their URIs."""

    def __init__(self, hub: Hub, others: Mapping[str, ModelHub]) -> None:
        """`others` holds models by the scheme of their URIs."""
        self._hub, self._others = hub, others

    @override
    def resolve(self, repo: str, revision: str) -> Source:
        return self._of(repo).resolve(repo, revision)

    @override
    def read_file(self, source: Source, path: str) -> bytes:
        return self._of(source.repo).read_file(source, path)

    @override
    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        return self._of(source.repo).bring(source, file, take, count)

    @override
    def pin_dataset(self, uri: str) -> DatasetFile:
        return self._hub.pin_dataset(uri)

    @override
    def commit_of_dataset(self, repo: str) -> str:
        return self._hub.commit_of_dataset(repo)

    @override
    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        return self._hub.read_dataset(dataset)

    def _of(self, repo: str) -> ModelHub:
        scheme, separator, _ = repo.partition(":")
        if separator and scheme not in self._others:
            raise InputError(
                f"the site names no server for {repo}",
                expected=f"the section {scheme} in the site file",
                remedy="Add it, or name a source of another kind.",
            )
        return self._others[scheme] if separator else self._hub


def sources(site: Site, store: ObjectStore, environment: Mapping[str, str], clock: Clock) -> Hub:
    """The site's sources of models.

    Args:
        site: which Hub.
        store: reads folders, with the access that the site's steps have.
        environment: has the tokens, each of which is sent to its own server alone, and where a volume is mounted.
        clock: of waits.

    Raises:
        InputError: as HuggingFaceHub.
    """
    folders = ObjectStoreFolders(store, Layout(site.object_store.root))
    others: dict[str, ModelHub] = {"s3": folders, "pvc": VolumeFolders(environment.get(VOLUME_VARIABLE, ""))}
    if site.mlflow:
        others["mlflow"] = MlflowModels(site.mlflow, environment.get(MLFLOW_TOKEN_VARIABLE) or None, folders)
    return Sources(HuggingFaceHub(site.hub.endpoint, environment.get("HF_TOKEN") or None, clock), others)
