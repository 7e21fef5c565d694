"""One server for several models: `serving.group` names it, and every member pins its model to GPUs of its pod. Pure.

A combination of releases, one of each member, is one Deployment, named after the combination. A release of one member
renders the combination that is live with its own member replaced: the other models are fetched from the very releases
that serve already, so that nothing of theirs changes. A member's Service selects pods by the member's own release;
while two combinations stand side by side it reaches both, for both answer with the same release of the other models.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.contracts.base import sha256_of
from tasks.contracts.errors import InputError
from tasks.contracts.plan import RELEASE_DIGITS
from tasks.contracts.release import Release
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec
from tasks.rollout import launch, serving
from tasks.rollout.placement import Placement, placed
from tasks.rollout.serving import Document

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
        """Of the model."""
        return self.release.spec.name

    @property
    def label(self) -> dict[str, str]:
        """By which the model's Services find the pods that serve this release."""
        return {f"{MEMBER_LABEL}{self.name}": self.release.id}


def replaced(live: Sequence[Member], new: Member) -> tuple[Member, ...]:
    """The combination that is live, with the new release in place of the same model's; by name."""
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


def ready_timeout_s(members: Sequence[Member]) -> int:
    """How long a server of these may take to become ready."""
    return max(member.release.spec.serving.ready_timeout_s for member in members)


def deployment(members: Sequence[Member], site: Site, templates: Path) -> list[Document]:
    """What runs one combination: a Deployment whose pod fetches every member's repository and serves them all.

    Raises:
        InputError: the members cannot share a server, or the site lacks what it needs.
    """
    name, where = server_name(members), placed_together([member.release.spec for member in members], site)
    selector = {**selector_of(members), serving.RELEASE_LABEL: name}
    labels = {**serving.OWN_LABELS, serving.NAME_LABEL: _group(members), **selector}
    specs = [member.release.spec for member in members]
    drain_s = max(spec.drain_s for spec in specs)
    server = launch.Server(site.serving.bind_address, serving.exit_timeout_s(drain_s), "$(POD_NAME)")
    values: dict[str, Any] = {
        "name": name,
        "labels": {**labels, **{key: value for member in members for key, value in member.label.items()}},
        "selector": selector,
        "annotations": {f"slipway.dev/release-uri.{member.name}": member.release_uri for member in members},
        "replicas": max(spec.serving.replicas.min for spec in specs),
        "image": serving.image_of(specs[0], site, where),
        "ready_timeout_s": ready_timeout_s(members),
        # of all models: a combination that lost one of them is no better than one that lost all
        "ready_path": "/v2/health/ready",
        "fetched": [{"name": f"fetch-{member.name}", "release_uri": member.release_uri} for member in members],
        "command": launch.single(server),
        "pre_stop_s": serving.PRE_STOP_S,
        "drain_s": drain_s,
        "grace_s": serving.PRE_STOP_S + server.exit_timeout_s + serving.SPARE_S,
        **serving.pod_values(site, where),
    }
    return serving.workload(templates, "deployment.yaml.j2", values)


def service(member: Member, site: Site, templates: Path, *, candidate: bool) -> list[Document]:
    """The member's live Service, or its candidate's: it selects every combination that holds this release."""
    return serving.service_selecting(
        selector_of_member(member), member.release.spec, site, templates, candidate=candidate
    )


def placed_together(specs: Sequence[ReleaseSpec], site: Site) -> Placement:
    """On what one pod with all of these models runs: the members' shape, with as many GPUs as they number.

    Raises:
        InputError: the models cannot share a server, or the site lacks what it needs.
    """
    _check_models(specs, site)
    first = specs[0]
    where = placed(first, site)
    owners: dict[int, str] = {}
    for spec in specs:
        for number in spec.serving.gpus:
            if number in owners:
                raise InputError(
                    f"GPU {number} of group {first.serving.group} is {owners[number]}'s and {spec.name}'s. "
                    "Give each a GPU of its own by serving.gpus."
                )
            owners[number] = spec.name
    count = max(owners, default=-1) + 1
    if first.engine.gpu is not None and count > site.gpus[first.engine.gpu].per_node:
        raise InputError(
            f"group {first.serving.group} numbers GPUs up to {count - 1}, a node of site {site.name} has "
            f"{site.gpus[first.engine.gpu].per_node} {first.engine.gpu}. A group is one pod: take a member out, or "
            "choose a GPU with more on a node."
        )
    return Placement(where.shape.model_copy(update={"gpus": count}), ranks=count)


def _group(members: Sequence[Member]) -> str:
    return _group_of([member.release.spec for member in members])


def _group_of(specs: Sequence[ReleaseSpec]) -> str:
    groups = {spec.serving.group for spec in specs}
    if len(groups) != 1 or None in groups:
        named = ", ".join(sorted(str(group) for group in groups)) or "no members"
        raise InputError(f"one server is one group, found {named}. Give its members the same serving.group.")
    return str(groups.pop())


def _check_models(specs: Sequence[ReleaseSpec], site: Site) -> None:
    group = _group_of(specs)
    twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if twice:
        raise InputError(f"group {group} is given two releases of {', '.join(twice)}; it serves one of each model.")
    for what, found in (
        ("GPU product", {spec.engine.gpu or "none" for spec in specs}),
        ("image", {serving.image_of(spec, site, placed(spec, site)) for spec in specs}),
    ):
        if len(found) > 1:
            raise InputError(
                f"group {group} is one pod with one {what}, its members ask for {', '.join(sorted(found))}. Take the "
                "ones that differ out of the group."
            )
