"""Lists the live members of a group: the models whose channel names a release of that group."""

from pathlib import PurePosixPath

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.channel_store import ChannelStore
from slipway.tasks.serving.rendered.groups import Member


def live_members(group: str, workspace: Workspace, *, besides: str) -> tuple[Member, ...]:
    """Live releases of the group's models other than `besides`, by name.

    Raises:
        InputError: a live release's document cannot be read.
        UnavailableError: the object store does not answer.
    """
    store, layout = workspace.store, workspace.layout
    names = sorted(PurePosixPath(item.uri).stem for item in store.list(layout.channels()))
    members = []
    for name in names:
        entry = None if name == besides else ChannelStore(store, layout, name, workspace.clock).read().live
        if entry is None:
            continue
        release = read_contract_json(Release, store.read_bytes(entry.release_uri), entry.release_uri)
        if release.spec.serving.group == group:
            members.append(Member(release, entry.release_uri))
    return tuple(members)
