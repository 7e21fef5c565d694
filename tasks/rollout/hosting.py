"""Which server holds a release: one of its own, or the one that its group shares; and what of it a cluster shows."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.adapters.workspace import Workspace
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec
from tasks.rollout import groups, serving
from tasks.rollout.groups import Member
from tasks.rollout.members import live_members
from tasks.rollout.placement import placed
from tasks.rollout.serving import Document

log = logging.getLogger(__name__)


class Host(Protocol):
    """The server of one release."""

    @property
    def name(self) -> str:
        """Of its workload."""

    @property
    def selectors(self) -> tuple[dict[str, str], ...]:
        """Labels of the workloads that a roll-out of the model looks after: each carries one of these sets."""

    @property
    def release_pods(self) -> dict[str, str]:
        """Labels of the pods that serve the release, which its Services select."""

    @property
    def server_pods(self) -> dict[str, str]:
        """Labels of the pods of this very server."""

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Other models that the server holds."""

    @property
    def ready_timeout_s(self) -> int:
        """How long the server may take to become ready."""

    def rendered(self) -> list[Document]:
        """What runs it, its workload first."""

    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        """Names of servers, besides the model's own releases, that stay while `live()` is the model's live release."""


@dataclass(frozen=True)
class OwnServer:
    """A server that holds one release, and is named after it."""

    member: Member
    site: Site
    templates: Path

    neighbours: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """See Host."""
        return self.member.release.id

    @property
    def selectors(self) -> tuple[dict[str, str], ...]:
        """See Host."""
        return ({serving.MODEL_LABEL: self.member.name},)

    @property
    def release_pods(self) -> dict[str, str]:
        """See Host."""
        return serving.selector_of(self.member.name, self.member.release.id)

    @property
    def server_pods(self) -> dict[str, str]:
        """See Host."""
        return self.release_pods

    @property
    def ready_timeout_s(self) -> int:
        """See Host."""
        return self.member.release.spec.serving.ready_timeout_s

    def rendered(self) -> list[Document]:
        """See Host."""
        return serving.deployment(self.member.release, self.member.release_uri, self.site, self.templates)

    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        """See Host."""
        del live
        return frozenset()


@dataclass(frozen=True)
class SharedServer:
    """A server that holds the release and the live ones of the group's other models."""

    member: Member
    others: tuple[Member, ...]
    site: Site
    templates: Path

    @property
    def members(self) -> tuple[Member, ...]:
        """What the server holds."""
        return groups.replaced(self.others, self.member)

    @property
    def name(self) -> str:
        """See Host."""
        return groups.server_name(self.members)

    @property
    def selectors(self) -> tuple[dict[str, str], ...]:
        """The group's, and the model's own: it may have had a server to itself before."""
        return groups.selector_of(self.members), {serving.MODEL_LABEL: self.member.name}

    @property
    def release_pods(self) -> dict[str, str]:
        """See Host."""
        return groups.selector_of_member(self.member)

    @property
    def server_pods(self) -> dict[str, str]:
        """See Host."""
        return {**groups.selector_of(self.members), serving.RELEASE_LABEL: self.name}

    @property
    def neighbours(self) -> tuple[str, ...]:
        """See Host."""
        return tuple(member.name for member in self.others)

    @property
    def ready_timeout_s(self) -> int:
        """See Host."""
        return groups.ready_timeout_s(self.members)

    def rendered(self) -> list[Document]:
        """See Host."""
        return groups.deployment(self.members, self.site, self.templates)

    def needed(self, live: Callable[[], Release | None]) -> frozenset[str]:
        """The server of what is live. No combination before it stays warm: it would hold as many GPUs again."""
        release = live()
        stays = release is not None and release.spec.serving.group == self.member.release.spec.serving.group
        members = groups.replaced(self.others, Member(release, "")) if release is not None and stays else self.others
        return frozenset({groups.server_name(members)}) if members else frozenset()


def host_of(release: Release, release_uri: str, workspace: Workspace) -> Host:
    """The server of a release as the channels stand now.

    Raises:
        InputError: another member's release cannot be read.
        UnavailableError: the object store does not answer.
    """
    member, templates = Member(release, release_uri), workspace.manifests / "serving"
    group = release.spec.serving.group
    if group is None:
        return OwnServer(member, workspace.site, templates)
    return SharedServer(member, live_members(group, workspace, besides=member.name), workspace.site, templates)


def check_supported(spec: ReleaseSpec) -> None:
    """Refuse what a spec may say and no roll-out does yet.

    Raises:
        InputError: what to choose in its place.
    """
    if spec.rollout.strategy != "blue-green":
        raise InputError(
            f"rollout.strategy {spec.rollout.strategy} needs Gateway API routes, which are not there yet. "
            "Choose blue-green."
        )
    if spec.serving.exposure == "ingress":
        raise InputError(
            "serving.exposure ingress is not there yet. Choose cluster, with your own Ingress for Service "
            f"{spec.name}, or load-balancer."
        )


def check(spec: ReleaseSpec, workspace: Workspace) -> None:
    """Refuse a spec that no server of this site can hold, its group's live models considered.

    Raises:
        InputError: in words that say what would fit.
    """
    check_supported(spec)
    replicas = spec.serving.replicas
    if replicas.max != replicas.min:
        log.warning(
            "serving.replicas.max %d is not used: replicas do not follow the load yet; %d will serve",
            replicas.max,
            replicas.min,
        )
    group, site = spec.serving.group, workspace.site
    if group is None:
        serving.image_of(spec, site, placed(spec, site))
    else:
        others = live_members(group, workspace, besides=spec.name)
        groups.placed_together([spec, *(member.release.spec for member in others)], site)


def service(release: Release, release_uri: str, workspace: Workspace, *, candidate: bool) -> list[Document]:
    """The model's live Service, or its candidate's, selecting every pod that serves the release."""
    site, templates = workspace.site, workspace.manifests / "serving"
    if release.spec.serving.group is None:
        return serving.service(release.id, release.spec, site, templates, candidate=candidate)
    return groups.service(Member(release, release_uri), site, templates, candidate=candidate)


def selected(selector: dict[str, str], model: str) -> str | None:
    """The release of `model` that a Service with this selector reaches; None: of no one release."""
    return selector.get(f"{groups.MEMBER_LABEL}{model}") or selector.get(serving.RELEASE_LABEL)


def leases(spec: ReleaseSpec) -> tuple[str, ...]:
    """Names of the leases that a run must hold to change the model: its own, and its group's."""
    own = f"slipway-{spec.name}"
    # a model's name has no dot, so that no model's lease can be mistaken for a group's
    return (own,) if spec.serving.group is None else (own, f"slipway-group.{spec.serving.group}")
