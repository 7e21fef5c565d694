"""One server for several models: `serving.group` names it, and every member pins its model to GPUs of its pod. Pure.

A combination of releases, one of each member, is one Deployment, named after the combination. A release of one member
renders the live combination with that member replaced: the other models are fetched from the releases that already
serve, so nothing changes for them. A member's Service selects pods by the member's own release; while two combinations
run side by side it reaches both, because both answer with the same release of the other models.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.host_cache import host_cache_bytes
from slipway.tasks.contracts.fit.placement import Placement, with_memory
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site, quantity
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import RELEASE_DIGITS
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import commands, front, manifests
from slipway.tasks.serving.rendered.front_routes import limits_of
from slipway.tasks.serving.rendered.manifests import Document

GROUP_LABEL = "slipway.dev/group"
MEMBER_LABEL = "slipway.dev/release."
"""Followed by a member's name: its release in this combination. 48 characters at most, of the 63 that are allowed."""


@dataclass(frozen=True)
class Member:
    """A release that a combination holds."""

    release: Release
    release_uri: str

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.release.spec.name

    @property
    def label(self) -> dict[str, str]:
        """Label by which the model's Services find the pods that serve this release."""
        return {f"{MEMBER_LABEL}{self.name}": self.release.id}

    def on(self, site: Site) -> ResolvedRelease:
        """The release with what it gets on the site."""
        return ResolvedRelease(self.release.spec, site)


def replaced(live: Sequence[Member], new: Member) -> tuple[Member, ...]:
    """The live combination with the new release in place of the same model's, sorted by name."""
    others = [member for member in live if member.name != new.name]
    return tuple(sorted([*others, new], key=lambda member: member.name))


def server_name(members: Sequence[Member]) -> str:
    """`<group>-<12 hex digits>`, one name per combination of releases."""
    releases = sorted(member.release.id for member in members)
    return f"{_group(members)}-{sha256_of(releases)[:RELEASE_DIGITS]}"


def selector_of(members: Sequence[Member]) -> dict[str, str]:
    """Labels of every server of the members' group."""
    return {GROUP_LABEL: _group(members)}


def selector_of_member(member: Member) -> dict[str, str]:
    """Labels of every pod that serves the member's release."""
    return {**selector_of([member]), **member.label}


def release_uris(members: Sequence[Member]) -> dict[str, str]:
    """Annotations with the addresses of the releases that a combination's pods fetch."""
    return {f"{manifests.RELEASE_URI}.{member.name}": member.release_uri for member in members}


def ready_timeout_s(members: Sequence[Member]) -> int:
    """How long a server of these members may take to become ready."""
    return max(member.release.spec.serving.ready_timeout_s for member in members)


def deployment(members: Sequence[Member], site: Site, templates: Path) -> list[Document]:
    """Render one combination: a Deployment whose pod fetches every member's repository and serves them all.

    Raises:
        InputError: the members cannot share a server, or the site lacks what it needs.
    """
    name, where = server_name(members), placed_together([member.on(site) for member in members])
    selector = {**selector_of(members), manifests.RELEASE_LABEL: name}
    labels = {**manifests.OWN_LABELS, manifests.NAME_LABEL: _group(members), **selector}
    specs = [member.release.spec for member in members]
    drain_s = max(spec.drain_s for spec in specs)
    server = commands.Server(
        site.serving.bind_address,
        manifests.exit_timeout_s(drain_s),
        "$(POD_NAME)",
        latency_histograms=site.telemetry.metrics,
        traces=site.telemetry.triton_traces,
        unloads_models=any(spec.engine.traits.unloads_dead_engine for spec in specs),
    )
    values: dict[str, Any] = {
        "name": name,
        "labels": {**labels, **{key: value for member in members for key, value in member.label.items()}},
        "selector": selector,
        "annotations": release_uris(members),
        "replicas": max(spec.serving.replicas.min for spec in specs),
        "max_surge": 1,
        "most_replicas": max(manifests.most_replicas(spec) for spec in specs),
        "ready_timeout_s": ready_timeout_s(members),
        # of all models: a combination that lost one of them is no better than one that lost all
        "ready_path": "/v2/health/ready",
        **manifests.probes(*specs, ready_timeout_s=ready_timeout_s(members)),
        "fetched": [{"name": f"fetch-{member.name}", "release_uri": member.release_uri} for member in members],
        "command": commands.single(server),
        "drain_s": drain_s,
        "grace_s": manifests.grace_s(drain_s, server.exit_timeout_s),
        **manifests.pod_values(site, where),
        **front.values(
            site,
            templates,
            models=[spec.name for spec in specs],
            cpu=where.shape.cpu,
            connection_age_s=min(spec.serving.connection_age_s for spec in specs),
            drain_s=drain_s,
            limits=limits_of(specs, int(quantity(where.shape.memory))),
        ),
    }
    return manifests.workload(templates, "deployment.yaml.j2", values)


def service(member: Member, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The member's live Service, or its candidate's: it selects every combination that holds this release."""
    return manifests.service_selecting(selector_of_member(member), member.on(site), templates, candidate=candidate)


def placed_together(releases: Sequence[ResolvedRelease]) -> Placement:
    """Placement of one pod with all of these models: the members' shape, with GPUs up to the highest id they name.

    Raises:
        InputError: the models cannot share a server, or the site lacks what it needs.
    """
    specs = [release.spec for release in releases]
    group = _group_of(specs)
    twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if twice:
        raise InputError(
            f"group {group} serves one release of each model",
            found=f"two of {', '.join(twice)}",
            remedy="Leave one of them out.",
        )
    _check_same(group, "GPU product", {spec.engine.gpu or "none" for spec in specs})
    placements = [release.serving for release in releases]
    _check_same(group, "image", {placement.image for placement in placements})
    owners: dict[int, str] = {}
    for spec in specs:
        for number in spec.serving.gpus:
            if number in owners:
                raise InputError(
                    f"GPU {number} of group {group} belongs to two models",
                    found=f"{owners[number]} and {spec.name}",
                    remedy="Give each a GPU of its own in serving.gpus.",
                )
            owners[number] = spec.name
    count = max(owners, default=-1) + 1
    # the first member's shape already has what that member keeps in the host's memory
    shape = with_memory(placements[0].shape, sum(spec.engine.ranks * host_cache_bytes(spec) for spec in specs[1:]))
    return replace(placements[0], shape=shape.model_copy(update={"gpus": count}), ranks=count)


def _group(members: Sequence[Member]) -> str:
    return _group_of([member.release.spec for member in members])


def _group_of(specs: Sequence[ReleaseSpec]) -> str:
    groups = {spec.serving.group for spec in specs}
    if len(groups) != 1 or None in groups:
        named = ", ".join(sorted(str(group) for group in groups)) or "no members"
        raise InputError(
            "the models of one server have one group",
            found=named,
            remedy="Give them the same serving.group.",
        )
    return str(groups.pop())


def _check_same(group: str, what: str, values: set[str]) -> None:
    if len(values) > 1:
        raise InputError(
            f"group {group} is one pod with one {what}",
            found=", ".join(sorted(values)),
            remedy="Take the models that differ out of the group.",
        )
