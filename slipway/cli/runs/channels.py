"""The channel of a model, and its live release, as the commands read them."""

from typing import TYPE_CHECKING

from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.adapters import Adapters
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.stored.artifact import Layout


def read_channel(store: "ObjectStore", layout: "Layout", name: str) -> Channel:
    """The model's channel.

    Raises:
        InputError: no release of the model was promoted yet.
    """
    uri = layout.channel(name)
    stored = store.read_with_etag(uri)
    if stored is None:
        raise InputError(
            f"no release of {name} was promoted here yet: {uri} does not exist",
            remedy="Check the name: `slipway status` lists the models. A first release gets its channel when it is "
            "promoted.",
        )
    return read_contract_json(Channel, stored[0], uri)


def live_adapters(store: "ObjectStore", layout: "Layout", channel: Channel) -> Adapters | None:
    """The adapters that were added to the live release; None where there never were any."""
    if channel.live is None:
        return None
    uri = layout.adapters(channel.name, channel.live.release_id)
    stored = store.read_with_etag(uri)
    return read_contract_json(Adapters, stored[0], uri) if stored else None


def live_release(store: "ObjectStore", channel: Channel) -> tuple[ChannelEntry, Release]:
    """What the channel names as live.

    Raises:
        InputError: no release of the model is live.
    """
    live = channel.live
    if live is None:
        name = channel.name
        raise InputError(f"no release of {name} is live", remedy=f"Make one with `slipway release {name}`.")
    return live, read_contract_json(Release, store.read_bytes(live.release_uri), live.release_uri)
