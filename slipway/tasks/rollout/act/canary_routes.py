"""The routes of a model while a canary shifts their weights: one write changes the weights and the canary's state."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.decide import canary
from slipway.tasks.rollout.decide.canary import Phase, State
from slipway.tasks.serving.rendered import exposure, manifests

log = logging.getLogger(__name__)

STATE = "slipway.dev/canary"
"""Annotation of the HTTPRoute: release and run of the canary, and its state, as JSON."""
ACCEPTED, RESOLVED = "Accepted", "ResolvedRefs"


@dataclass(frozen=True)
class CanaryRoutes:
    """The HTTPRoute of a model, which holds the state, and its GRPCRoute, which follows it."""

    release: Release
    """The candidate."""
    live: Release
    run: str
    site: Site
    templates: Path
    cluster: Cluster

    def state(self) -> State | None:
        """The state of this run's canary; None before its first step."""
        route = self.cluster.get(exposure.HTTP_ROUTE, self.live.spec.name)
        return state_of(route, self.release.id, self.run) if route else None

    def write(self, state: State) -> None:
        """Store a state and give its share of the traffic to the candidate. Repeating it does no harm.

        Raises:
            StaleError: another client changed the route at the same time.
            InputError: there is no route of ours.
        """
        split = canary.split(state, canary.plan_of(self.release.spec.rollout))
        for item in exposure.routes(ResolvedRelease(self.live.spec, self.site), self.templates, split):
            there = self._own(item["kind"])
            if item["kind"] == exposure.HTTP_ROUTE:
                item["metadata"]["annotations"][STATE] = _document(state, self.release.id, self.run)
            if _same(there, item):
                continue
            item["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            self.cluster.apply([item])

    def _own(self, kind: str) -> manifests.Document:
        name = self.live.spec.name
        there = self.cluster.get(kind, name)
        if there is None or not manifests.OWN_LABELS.items() <= (there["metadata"].get("labels") or {}).items():
            raise InputError(
                f"{kind} {self.cluster.namespace}/{name} is not there, or Slipway did not make it",
                expected=f"the one that was made with {self.live.id}",
                remedy="Release the model once with rollout.strategy blue-green, which makes it, then try again.",
            )
        return there


def state_of(route: manifests.Document, release_id: str, run: str) -> State | None:
    """The state of a release's canary in one run that a route holds."""
    text = (route["metadata"].get("annotations") or {}).get(STATE)
    if not text:
        return None
    try:
        document: dict[str, Any] = json.loads(text)
        if (document["release"], document["run"]) != (release_id, run):
            return None
        return State(Phase(document["phase"]), int(document["step"]), int(document["blind_looks"]))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the annotation %s of route %s cannot be read: %s", STATE, route["metadata"]["name"], error)
        return None


def is_taken_up(route: manifests.Document) -> bool:
    """Whether every Gateway that reported on a route did so for its newest generation, or none reports at all."""
    generation = route["metadata"].get("generation", 0)
    conditions = _conditions(route, ACCEPTED)
    return all(condition.get("observedGeneration", generation) >= generation for condition in conditions)


def refusal(route: manifests.Document) -> str | None:
    """Why a Gateway does not serve the newest generation of a route; empty while none has said anything about it.

    None: it is accepted, and every Service that it names was found.
    """
    generation = route["metadata"].get("generation", 0)
    accepted = [one for one in _conditions(route, ACCEPTED) if one.get("observedGeneration", 0) >= generation]
    if not accepted:
        return ""
    for condition in (*accepted, *_conditions(route, RESOLVED)):
        if condition["status"] != "True":
            return (
                f"{condition['type']} is {condition['status']}: {condition.get('reason')}: {condition.get('message')}"
            )
    return None


def _conditions(route: manifests.Document, kind: str) -> list[dict[str, Any]]:
    parents = (route.get("status") or {}).get("parents") or []
    return [one for parent in parents for one in parent.get("conditions") or [] if one["type"] == kind]


def _same(there: manifests.Document, item: manifests.Document) -> bool:
    """Whether what is there was rendered as `item`, with the same state."""
    ours, theirs = item["metadata"]["annotations"], there["metadata"].get("annotations") or {}
    return all(ours.get(name) == theirs.get(name) for name in (manifests.MANIFEST, STATE))


def _document(state: State, release_id: str, run: str) -> str:
    return json.dumps(
        {
            "release": release_id,
            "run": run,
            "phase": state.phase.value,
            "step": state.step,
            "blind_looks": state.blind_looks,
        }
    )
