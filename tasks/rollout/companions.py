"""What stands beside a model's live Service, under the model's name, and follows the release that it selects."""

import logging
from dataclasses import dataclass
from pathlib import Path

from tasks.adapters.kube import Cluster
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.contracts.site import Site
from tasks.serving import manifests, scaling
from tasks.serving.manifests import Document

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Companions:
    """The scaler of one model. A site without a scaler has none, and its cluster is not asked for any."""

    model: str
    site: Site
    templates: Path
    cluster: Cluster

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that may stand there on this site; the site may have used another one of them before."""
        return scaling.KINDS if self.site.serving.scaler else ()

    def are_in_place(self, live: Release | None) -> bool:
        """Whether what `live` wants is there and nothing else of ours is; nothing where no release is live.

        An object of someone else is left alone, and stands for ours.
        """
        there = self._there()
        ours = {kind: manifests.digest_of(item) for kind, item in there.items() if _is_own(item)}
        others = there.keys() - ours.keys()
        return ours == {
            item["kind"]: manifests.digest_of(item) for item in self._wanted(live) if item["kind"] not in others
        }

    def put(self, live: Release | None) -> str:
        """Apply what `live` wants, and delete the rest of ours."""
        there, wanted = self._there(), {item["kind"]: item for item in self._wanted(live)}
        others = {kind for kind, item in there.items() if not _is_own(item)}
        for kind in sorted(wanted.keys() & others):
            log.warning("%s %s is not Slipway's; it does not follow the live release", kind, self.model)
            del wanted[kind]
        self.cluster.apply(wanted.values())
        gone = sorted(there.keys() - wanted.keys() - others)
        for kind in gone:
            self.cluster.delete(kind, self.model)
        done = [f"{kind} {self.model} follows {live.id}" for kind in wanted if live]
        return "; ".join([*done, *(f"{kind} {self.model} is removed" for kind in gone)])

    def check_free(self, release: Release) -> None:
        """Make sure, before anything is deployed, that no object of someone else has the name that ours would have.

        Raises:
            InputError: one has.
        """
        there = self._there()
        for kind in (item["kind"] for item in self._wanted(release)):
            if kind in there and not _is_own(there[kind]):
                raise InputError(
                    f"{kind} {self.cluster.namespace}/{self.model} exists, and Slipway did not make it",
                    expected=f"none, or one with the label {'='.join(*manifests.OWN_LABELS.items())}",
                    remedy="Delete or rename it, or remove from the spec what asks for another one.",
                )

    def _wanted(self, live: Release | None) -> list[Document]:
        return scaling.scaler(live, self.site, self.templates) if live and self.kinds else []

    def _there(self) -> dict[str, Document]:
        found = {kind: self.cluster.get(kind, self.model) for kind in self.kinds}
        return {kind: item for kind, item in found.items() if item is not None}


def _is_own(item: Document) -> bool:
    return manifests.OWN_LABELS.items() <= (item["metadata"].get("labels") or {}).items()
