"""What adapters a spec adds to the live release: looked up at the Hub, checked as those of a release, and keyed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.engine import LiveAdapter
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.adapters import AdapterEntry, Adapters
from slipway.tasks.contracts.stored.artifact import ADAPTER
from slipway.tasks.contracts.stored.plan import Source, lora_folder
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.checkpoint.files import CONFIG
from slipway.tasks.engines.preflight.loras import ADAPTER_CONFIG, check_loras, rank_of, support_of
from slipway.tasks.engines.preflight.sources import documents_of, files_of_adapter

if TYPE_CHECKING:  # the client is loaded when a step connects to the Hub
    from slipway.tasks.adapters.hub.hub import Hub


@dataclass(frozen=True)
class Added:
    """An adapter that can be added, and its files at the Hub."""

    entry: AdapterEntry
    source: Source


def resolve_adapters(spec: ReleaseSpec, live: Release, hub: "Hub", architecture: str) -> tuple[Added, ...]:
    """The spec's adapters for the live release, in order of name; `architecture` is the live model's.

    Raises:
        InputError: an adapter or the access to it is missing, the runtime cannot serve it, or the live release was
            started without room for it.
        UnavailableError: the Hub does not answer.
    """
    _check_room(spec, live)
    sources = {each.name: files_of_adapter(hub.resolve(each.repo, each.revision)) for each in spec.adapters}
    documents = {CONFIG: {"architectures": [architecture]}} | {
        f"{lora_folder(name)}/{path}": document
        for name, source in sources.items()
        for path, document in documents_of(source, (ADAPTER_CONFIG,), hub).items()
    }
    engine = live.spec.engine.model_copy(update={"lora": spec.adapters})
    check_loras(live.spec.model_copy(update={"engine": engine}), documents)
    return tuple(
        Added(_entry(each, sources[each.name], live, documents), sources[each.name])
        for each in sorted(spec.adapters, key=lambda each: each.name)
    )


def files_by_digest(source: Source) -> dict[str, str]:
    """What the artifact depends on. A commit is not: two commits with the same files are the same adapter."""
    return {file.path: file.digest for file in source.files}


def changes(document: Adapters, wanted: tuple[AdapterEntry, ...]) -> tuple[str, ...]:
    """What differs from what names mean now, a line each."""
    before, after = ({entry.name: entry for entry in entries} for entries in (document.current, wanted))
    added = [f"+ {entry.words}" for name, entry in after.items() if name not in before]
    changed = [
        f"~ {entry.words}, was {before[name].commit[:12]}"
        for name, entry in after.items()
        if name in before and before[name].identity != entry.identity
    ]
    return (*added, *changed, *(f"- {name}" for name in before if name not in after))


def _check_room(spec: ReleaseSpec, live: Release) -> None:
    """Refuse a live release whose server was not started for these adapters.

    Raises:
        InputError: its engine kind or its options have no room, or its own adapters take the names or the slots.
    """
    engine, needed = live.spec.engine, len(live.spec.engine.lora) + len(spec.adapters)
    if spec.adapters and (not engine.room_rank or needed > engine.room):
        raise InputError(
            f"{live.id}, which is live, was started without room for the adapters of {spec.name}",
            found=f"room for {engine.room if engine.room_rank else 0} adapters",
            expected=f"{needed}",
            remedy=f"Set engine.options.max_loras and max_lora_rank, run `slipway release {spec.name}`, then add them.",
        )
    if taken := sorted({each.name for each in engine.lora} & {each.name for each in spec.adapters}):
        raise InputError(
            f"{live.id}, which is live, was published with adapters of the same name",
            found=", ".join(taken),
            remedy="Choose another name, or release the model without them first.",
        )


def _entry(
    adapter: LiveAdapter, source: Source, live: Release, documents: Mapping[str, Mapping[str, object]]
) -> AdapterEntry:
    config = documents[f"{lora_folder(adapter.name)}/{ADAPTER_CONFIG}"]
    rank, room = rank_of(adapter, config, support_of(live.spec)), live.spec.engine.room_rank
    if rank > room:
        raise InputError(
            f"adapter {adapter.name} ({source.name}) needs more room than {live.id}, which is live, was started with",
            found=f"rank {rank}",
            expected=f"at most {room}, engine.options.max_lora_rank",
            remedy="Raise max_lora_rank and release the model, or choose an adapter of a lower rank.",
        )
    inputs = {"publish": live.plan.stages["publish"].key}
    key = sha256_of({"stage": ADAPTER, "inputs": inputs, "fields": {"files": files_by_digest(source)}})
    return AdapterEntry(
        name=adapter.name, repo=source.repo, revision=source.revision, commit=source.commit, key=key, rank=rank
    )
