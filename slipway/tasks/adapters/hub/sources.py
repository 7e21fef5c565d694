"""Where models come from: the Hub, and folders of an object store. Steps see one Hub and need not know which."""

from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import override

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.hub.folders import ObjectStoreFolders
from slipway.tasks.adapters.hub.hub import Hub, HuggingFaceHub
from slipway.tasks.adapters.hub.reading import ModelHub
from slipway.tasks.adapters.store.object_store import ByteSource, ObjectStore
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import S3, DatasetFile, HubFile, Source

R = TypeVar("R")


class Sources(Hub):
    """A Hub whose repositories may also be folders, by `s3://<bucket>/<prefix>`."""

    def __init__(self, hub: Hub, folders: ModelHub) -> None:
        self._hub, self._folders = hub, folders

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
        return self._folders if repo.startswith(S3) else self._hub


def sources(site: Site, store: ObjectStore, token: str | None, clock: Clock) -> Hub:
    """The site's sources of models.

    Args:
        site: which Hub.
        store: reads folders, with the access that the site's steps have.
        token: the only one that is ever sent to the Hub.
        clock: of waits.

    Raises:
        InputError: as HuggingFaceHub.
    """
    folders = ObjectStoreFolders(store, Layout(site.object_store.root))
    return Sources(HuggingFaceHub(site.hub.endpoint, token, clock), folders)
