"""Reads what the object store holds of releases: channels, the releases that these name, and their steps' results."""

from dataclasses import dataclass

from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.contracts.base import read_contract, read_contract_json
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.adapters import Adapters, FetchedAdapters
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release, StepResult


@dataclass(frozen=True)
class ReleaseDocuments:
    """The documents of one object store.

    Each method raises InputError for a document that is missing or cannot be read, and UnavailableError if the store
    does not answer.
    """

    store: ObjectStore
    layout: Layout

    def channel(self, model: str) -> Channel:
        """The model's channel; an empty one before its first promotion."""
        uri = self.layout.channel(model)
        stored = self.store.read_with_etag(uri)
        return read_contract_json(Channel, stored[0], uri) if stored else Channel(name=model)

    def release(self, uri: str) -> Release:
        """The release whose release.json lies at `uri`."""
        return read_contract_json(Release, self.store.read_bytes(uri), uri)

    def adapters(self, model: str, release_id: str) -> Adapters:
        """The adapters that the release serves beside those that it was published with."""
        uri = self.layout.adapters(model, release_id)
        stored = self.store.read_with_etag(uri)
        return read_contract_json(Adapters, stored[0], uri) if stored else Adapters(release_id=release_id)

    def fetched_adapters(self, model: str, run: str) -> FetchedAdapters:
        """What a run's fetch-adapters stored, and for which release."""
        uri = self.layout.adapters_result(model, run, "fetch-adapters")
        data = read_contract_json(StepResult, self.store.read_bytes(uri), uri).data
        return read_contract(FetchedAdapters, data, uri)

    def result(self, release: Release, step: Step) -> StepResult:
        """The latest result of a step of this release, in this run or an earlier one."""
        uri = self.layout.result(release.spec.name, release.id, step)
        return read_contract_json(StepResult, self.store.read_bytes(uri), uri)
