"""The fourth move, preview: what a plan will move, how long it will take, and how it differs from what is live."""

from collections.abc import Sequence
from dataclasses import replace

from slipway.tasks.contracts.fit.forecast import (
    FAILED_STATES,
    PastTimes,
    Preview,
    differences,
    forecast,
    interruption,
    needed_requests,
)
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.bytes_to_move import bytes_to_move
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.planning.past import Past
from slipway.tasks.rollout.act.served import Served


def preview(plan: Plan, release: ResolvedRelease, served: Served, past: Past) -> Preview:
    """The plan with what it will take, from what earlier releases left.

    Args:
        plan: a plan that says which stages are stored.
        release: what it releases.
        served: what serves the model now.
        past: where earlier releases left their times and files.
    """
    spec, live = release.spec, served.live
    if plan.action == "nothing":
        return Preview(plan=plan, forecast=None, unapplied=_unapplied(spec, live.spec) if live else ())
    releases = past.releases(served.channel)
    times = _times(plan, spec, releases, served.channel, past)
    moved = bytes_to_move(plan, past.stored_files(plan, releases), past.repository(plan, spec, releases))
    measured = past.gate(live) if live else None
    expected = forecast(release, plan, times, moved=moved, live=live.spec if live else None)
    return Preview(
        plan=plan,
        forecast=expected,
        transfer=moved,
        needed=needed_requests(spec.gate, measured) if measured else (),
        interruption=interruption(spec, live, expected) if live else None,
    )


def _times(
    plan: Plan, spec: ReleaseSpec, releases: Sequence[Release], channel: Channel, past: Past
) -> PastTimes | None:
    """Times of the release that is most like the plan's, of those that left any; the live one first among equals."""
    differs = {release.id: differences(spec, plan, release) for release in releases}
    states = {release.id: channel.state_of(release.id) for release in releases}
    alike = sorted(releases, key=lambda each: len(differs[each.id]) + (states[each.id] in FAILED_STATES))
    times = next((each for each in map(past.times, alike) if each.seconds), None)
    if times is None:
        return None
    return replace(times, state=states[times.release_id], differs=differs[times.release_id])


def _unapplied(spec: ReleaseSpec, live: ReleaseSpec) -> tuple[str, ...]:
    """Sections that differ from the live release's although its artifacts are the same."""
    return tuple(name for name in ("serving", "gate", "rollout") if getattr(spec, name) != getattr(live, name))
