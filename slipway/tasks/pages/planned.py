"""Finds a release as a run planned it: another run may have planned the same one with another spec."""

from collections.abc import Collection

from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.pages import reading
from slipway.tasks.pages.reading import Reader, Stored

Tried = tuple[str, str]
"""The id of a release and the identity of a run."""


def planned_uris(channel: Channel, tried: Collection[Tried], layout: Layout, reader: Reader) -> dict[Tried, str]:
    """The address of each release as each run planned it; release.json where the run's plan does not say.

    A plan is read only where the channel knows another run of the same release.
    """
    known = {(event.release_id, event.run) for event in channel.history}
    again = {each for each in tried if any(each[0] == other[0] and each != other for other in known)}
    plans = {each: layout.plan(channel.name, each[1]) for each in again}
    found = reader.read(dict.fromkeys(plans.values(), reading.RESULT))
    return {
        each: layout.release(channel.name, each[0], _named(found[plans[each]], each[0]) if each in again else "")
        for each in tried
    }


def _named(plan: Stored, release_id: str) -> str:
    known = plan.value is not None and plan.value.data.get("release_id") == release_id
    return plan.value.release or "" if known else ""
