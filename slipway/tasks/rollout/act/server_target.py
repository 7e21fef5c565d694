"""The server of a release: its own, or the one that its group shares; and the Services that select it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.served import Served, live_members
from slipway.tasks.serving.rendered import groups, manifests
from slipway.tasks.serving.rendered.groups import Member
from slipway.tasks.serving.rendered.manifests import Document

log = logging.getLogger(__name__)


class ServerTarget(Protocol):
    """The server of one release."""

    @property
    def name(self) -> str:
        """Name of its workload."""

    @property
    def selectors(self) -> tuple[dict[str, str], ...]:
        """Labels of the workloads that a rollout of the model manages: each workload carries one of these sets."""

    @property
    def release_pods(self) -> dict[str, str]:
        """Labels of the pods that serve the release, which its Services select."""

    @property
    def server_pods(self) -> dict[str, str]:
        """Labels of the pods of this server."""

    @property
    def release_uris(self) -> dict[str, str]:
        """Annotations of its workload with the addresses of the releases that its pods fetch."""

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Other models that the server holds."""

    @property
    def ready_timeout_s(self) -> int:
        """How long the server may take to become ready."""

    def rendered(self) -> list[Document]:
        """The Kubernetes objects that run it, its workload first."""

    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        """Names of servers, besides those of the model's own releases, to keep while `live()` is its live release."""


@dataclass(frozen=True)
class OwnServerTarget(ServerTarget):
    """A server that holds one release, and is named after it."""

    member: Member
    site: Site
    templates: Path

    neighbours: tuple[str, ...] = ()

    @property
    @override
    def name(self) -> str:
        return self.member.release.id

    @property
    @override
    def selectors(self) -> tuple[dict[str, str], ...]:
        return ({manifests.MODEL_LABEL: self.member.name},)

    @property
    @override
    def release_pods(self) -> dict[str, str]:
        return manifests.selector_of(self.member.name, self.member.release.id)

    @property
    @override
    def server_pods(self) -> dict[str, str]:
        return self.release_pods

    @property
    @override
    def release_uris(self) -> dict[str, str]:
        return {manifests.RELEASE_URI: self.member.release_uri}

    @property
    @override
    def ready_timeout_s(self) -> int:
        return self.member.release.spec.serving.ready_timeout_s

    @override
    def rendered(self) -> list[Document]:
        return manifests.deployment(self.member.release, self.member.release_uri, self.site, self.templates)

    @override
    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        del live
        return frozenset()


@dataclass(frozen=True)
class SharedServerTarget(ServerTarget):
    """A server that holds the release and the live ones of the group's other models."""

    member: Member
    others: tuple[Member, ...]
    site: Site
    templates: Path

    @property
    def members(self) -> tuple[Member, ...]:
        """The members that the server holds."""
        return groups.replaced(self.others, self.member)

    @property
    @override
    def name(self) -> str:
        return groups.server_name(self.members)

    @property
    @override
    def selectors(self) -> tuple[dict[str, str], ...]:
        # the model's own labels as well: it may have had a server to itself before
        return groups.selector_of(self.members), {manifests.MODEL_LABEL: self.member.name}

    @property
    @override
    def release_pods(self) -> dict[str, str]:
        return groups.selector_of_member(self.member)

    @property
    @override
    def server_pods(self) -> dict[str, str]:
        return {**groups.selector_of(self.members), manifests.RELEASE_LABEL: self.name}

    @property
    @override
    def release_uris(self) -> dict[str, str]:
        return groups.release_uris(self.members)

    @property
    @override
    def neighbours(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.others)

    @property
    @override
    def ready_timeout_s(self) -> int:
        return groups.ready_timeout_s(self.members)

    @override
    def rendered(self) -> list[Document]:
        return groups.deployment(self.members, self.site, self.templates)

    @override
    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        # only the server of the live combination: keeping an earlier one warm would hold as many GPUs again
        release = live()
        stays = release is not None and release.spec.serving.group == self.member.release.spec.serving.group
        members = groups.replaced(self.others, Member(release, "")) if release is not None and stays else self.others
        return frozenset({groups.server_name(members)}) if members else frozenset()


def server_target_of(
    release: Release, release_uri: str, documents: ReleaseDocuments, site: Site, templates: Path
) -> ServerTarget:
    """The server of a release, according to the current channels.

    Raises:
        InputError: another member's release cannot be read.
        UnavailableError: the object store does not answer.
    """
    member = Member(release, release_uri)
    group = release.spec.serving.group
    if group is None:
        return OwnServerTarget(member, site, templates)
    return SharedServerTarget(member, live_members(group, documents, besides=member.name), site, templates)


def check_beside_live(release: ResolvedRelease, served: Served) -> None:
    """Refuse a release that cannot be rolled out here, or that cannot share a server with its group's live models.

    Raises:
        InputError: the message says what would fit.
    """
    spec = release.spec
    if spec.serving.group is not None:
        groups.placed_together([release, *(member.on(release.site) for member in served.group)])
    if spec.rollout.surge == "none" and (live := served.readable_live()) is not None:
        _check_live_has_gpus(spec, live)
    if spec.rollout.strategy == "canary" and (live := served.readable_live()) is not None:
        check_live_is_routed(spec, live)


def warnings(spec: ReleaseSpec) -> tuple[str, ...]:
    """What may surprise a person about the server, and does not stop a release."""
    replicas = spec.serving.replicas
    if replicas.max == replicas.min or spec.serving.autoscale is not None:
        return ()
    will = f"{replicas.min} replica{'s' * (replicas.min != 1)} will serve"
    return (f"serving.replicas.max {replicas.max} is a bound of serving.autoscale, which is absent; {will}",)


def _check_live_has_gpus(spec: ReleaseSpec, live: Release) -> None:
    """Refuse a candidate on GPUs of a live release that cannot give it any.

    Raises:
        InputError: the live release shares its server, or has other GPUs.
    """
    if live.spec.serving.group is not None:
        raise InputError(
            f"rollout.surge none of {spec.name} stops the server of {live.id}, which is live and shares it",
            found=f"group {live.spec.serving.group}",
            expected="a live release with a server of its own",
            remedy="Release it once with rollout.surge full, which needs GPUs for one more server.",
        )
    if live.spec.engine.gpu != spec.engine.gpu:
        raise InputError(
            f"rollout.surge none of {spec.name} needs the GPUs of {live.id}, which is live and has others",
            found=live.spec.engine.gpu or "no GPU",
            expected=spec.engine.gpu or "no GPU",
            remedy="Choose rollout.surge full for this release.",
        )


def check_live_is_routed(spec: ReleaseSpec, live: Release) -> None:
    """Refuse a canary beside a live release to which no route leads: there is no traffic to share.

    Raises:
        InputError: the live release is exposed in another way, or shares a server.
    """
    if live.spec.serving.exposure != "ingress" or live.spec.serving.group is not None:
        found = f"serving.exposure {live.spec.serving.exposure}"
        raise InputError(
            f"rollout.strategy canary of {spec.name} shares the requests of a route, and {live.id}, which is live, has "
            "none",
            found=found if live.spec.serving.group is None else f"{found}, in group {live.spec.serving.group}",
            expected="serving.exposure ingress, and a server of its own",
            remedy="Release it once with rollout.strategy blue-green, which makes the route; later releases may be "
            "canaries.",
        )


def service(release: Release, release_uri: str, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The model's live Service, or its candidate's, selecting every pod that serves the release."""
    if release.spec.serving.group is None:
        return manifests.service(release.id, ResolvedRelease(release.spec, site), templates, candidate=candidate)
    return groups.service(Member(release, release_uri), site, templates, candidate=candidate)


def selected(selector: dict[str, str], model: str) -> str | None:
    """The release of `model` that a Service with this selector reaches; None when it is not one release."""
    return selector.get(f"{groups.MEMBER_LABEL}{model}") or selector.get(manifests.RELEASE_LABEL)
