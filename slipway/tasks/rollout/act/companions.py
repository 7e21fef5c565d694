"""What stands beside a model's live Service, under the model's name, and follows the release that it selects."""

import logging
from dataclasses import dataclass
from pathlib import Path

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import exposure, manifests, scaling
from slipway.tasks.serving.rendered.manifests import Document

Place = tuple[str, str]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Companions:
    """The scaler and the routes of one model. A cluster is asked only for kinds that its site uses."""

    model: str
    site: Site
    templates: Path
    cluster: Cluster

    @property
    def places(self) -> tuple[Place, ...]:
        """Kind and name of what may stand there on this site, which may have used others of them before."""
        scalers = tuple((kind, self.model) for kind in scaling.KINDS) if self.site.serving.scaler else ()
        return scalers + (exposure.places(self.model) if self.site.serving.routes else ())

    def are_in_place(self, live: Release | None, *, scaled: bool = True) -> bool:
        """Whether what `live` wants is there and nothing else of ours is; nothing where no release is live.

        Without `scaled` it wants no scaler, because its replicas are those that a rollout gave it.

        An object of someone else is left alone, and stands for ours.
        """
        there, wanted = self._there(), self._wanted(live, scaled=scaled)
        ours = {place: manifests.digest_of(item) for place, item in there.items() if self._is_own(item)}
        others = there.keys() - ours.keys()
        return ours == {place: manifests.digest_of(item) for place, item in wanted.items() if place not in others}

    def put(self, live: Release | None, *, scaled: bool = True) -> str:
        """Apply what `live` wants, and delete the rest of ours."""
        there, wanted = self._there(), self._wanted(live, scaled=scaled)
        others = {place for place, item in there.items() if not self._is_own(item)}
        for kind, name in sorted(wanted.keys() & others):
            log.warning("%s %s is not Slipway's; it does not follow the live release", kind, name)
            del wanted[kind, name]
        self.cluster.apply(wanted.values())
        gone = sorted(there.keys() - wanted.keys() - others)
        for kind, name in gone:
            self.cluster.delete(kind, name)
        done = [f"{kind} {name} follows {live.id}" for kind, name in wanted if live]
        return "; ".join([*done, *(f"{kind} {name} is removed" for kind, name in gone)])

    def check_free(self, release: Release) -> None:
        """Make sure, before anything is deployed, that the release's objects can be made.

        Raises:
            InputError: an object of someone else has such a name, or the site lacks what the spec asks for.
        """
        resolved = ResolvedRelease(release.spec, self.site)
        _ = resolved.scaler, resolved.routes
        there = self._there()
        for kind, name in self._wanted(release):
            if (kind, name) in there and not self._is_own(there[kind, name]):
                raise InputError(
                    f"{kind} {self.cluster.namespace}/{name} exists, and Slipway did not make it",
                    expected=f"none, or one with the labels {', '.join(f'{k}={v}' for k, v in self._labels.items())}",
                    remedy="Delete or rename it, or remove from the spec what asks for another one.",
                )

    @property
    def _labels(self) -> dict[str, str]:
        return {**manifests.OWN_LABELS, manifests.MODEL_LABEL: self.model}

    def _is_own(self, item: Document) -> bool:
        return self._labels.items() <= (item["metadata"].get("labels") or {}).items()

    def _wanted(self, live: Release | None, *, scaled: bool = True) -> dict[Place, Document]:
        if live is None:
            return {}
        serving = self.site.serving
        objects = scaling.scaler(live, self.site, self.templates) if serving.scaler and scaled else []
        objects += exposure.routes(ResolvedRelease(live.spec, self.site), self.templates) if serving.routes else []
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    def _there(self) -> dict[Place, Document]:
        objects = {place: self.cluster.get(*place) for place in self.places}
        return {place: item for place, item in objects.items() if item is not None}
