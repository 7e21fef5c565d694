"""fetch-adapters: bring the adapters that a spec adds to the live release from the Hub to the object store, checked."""

import json
from functools import partial
from typing import Any

from slipway.tasks.adapters.store.artifacts import Incoming
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.adapters import AdaptersRequest, FetchedAdapters
from slipway.tasks.contracts.stored.artifact import ADAPTER, Stage
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.contracts.stored.release import PREVIOUS, Release
from slipway.tasks.engines.checkpoint.files import check_weights
from slipway.tasks.engines.checkpoint.lora_tensors import Base, check_adapter
from slipway.tasks.engines.passthrough import link_readable
from slipway.tasks.engines.preflight.loras import ADAPTER_WEIGHTS
from slipway.tasks.planning.adding import Added, changes, files_by_digest, resolve_adapters
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION, ENGINE_FOLDER, MODEL_VERSION

SHA256 = "sha256:"


def run(request: AdaptersRequest, workspace: Workspace) -> Outcome:
    """Store each adapter for the live release, verified, and compare its matrices with the release's own.

    Raises:
        InputError: nothing is live, an adapter cannot be served by what is live, or the Hub denies access.
        DigestMismatchError: a file differs from the one that was announced.
        UnavailableError: the Hub or the object store does not answer.
    """
    if request.to == PREVIOUS:
        return Outcome("the adapters before are stored", {"release": None, "adapters": []}, stored=True)
    entry = workspace.documents.channel(request.model).live
    if entry is None:
        raise InputError(
            f"nothing of {request.model} is live, so adapters have no base",
            remedy=f"Release the model first: `slipway release {request.model}`.",
        )
    live = workspace.documents.release(entry.release_uri)
    described = _described(live, workspace) if request.spec.adapters and live.spec.engine.room_rank else {}
    added = resolve_adapters(request.spec, live, workspace.hub, described.get("architecture", ""))
    base = _base(described["base"]) if added else Base({}, (), None)
    for each in added:
        _store(each, live, base, workspace)
    wanted = tuple(each.entry for each in added)
    document = workspace.documents.adapters(request.model, live.id)
    lines = changes(document, wanted)
    fetched = FetchedAdapters(
        release=live.id,
        adapters=wanted,
        questions={each.name: each.smoke for each in request.spec.adapters},
        size_bytes=sum(each.source.size_bytes for each in added),
    )
    return Outcome(
        f"{live.id}: {', '.join(lines) or 'its adapters are what the spec names'}", fetched.model_dump(mode="json")
    )


def _store(added: Added, live: Release, base: Base, workspace: Workspace) -> None:
    """Store an adapter as the server reads it, once its files are checked; the manifest keeps it from retention."""
    entry, source, artifacts = added.entry, added.source, workspace.artifacts
    if artifacts.use(ADAPTER, entry.key) is not None:
        return
    workspace.require_space(source.size_bytes, f"adapter {entry.name}")
    downloaded = _downloaded(source, workspace)
    folder, readable = (workspace.folder(f"{part}/{entry.name}") for part in ("downloaded", "readable"))
    artifacts.fetch("download", downloaded, folder)
    check_weights(folder)
    check_adapter(folder / ADAPTER_WEIGHTS, entry.rank, base, f"adapter {entry.name}")
    link_readable(folder, readable)
    inputs: dict[Stage, str] = {"publish": live.plan.stages["publish"].key, "download": downloaded}
    producer = {"repo": source.repo, "commit": source.commit}
    artifacts.store(ADAPTER, entry.key, readable, inputs=inputs, producer=producer, metrics={}, seconds=0.0)


def _downloaded(source: Source, workspace: Workspace) -> str:
    """The key of an artifact with the source's files, verified on the way."""
    key = sha256_of({"stage": "download", "inputs": {}, "fields": {"files": files_by_digest(source)}})
    if workspace.artifacts.use("download", key) is None:
        incoming = [
            Incoming(
                file.path,
                file.size_bytes,
                file.digest.removeprefix(SHA256) if file.digest.startswith(SHA256) else None,
                partial(workspace.hub.bring, source, file),
            )
            for file in source.files
        ]
        producer = {"repo": source.repo, "commit": source.commit}
        workspace.artifacts.stream(
            "download", key, incoming, what=f"download {source.name}", inputs={}, producer=producer, metrics={}
        )
    return key


def _described(live: Release, workspace: Workspace) -> dict[str, Any]:
    """What build recorded of the live release's engine."""
    path = f"{live.spec.name}/{MODEL_VERSION}/{ENGINE_FOLDER}/{ENGINE_DESCRIPTION}"
    folder = workspace.folder("engine")
    workspace.artifacts.fetch("publish", live.plan.stages["publish"].key, folder, only=path)
    recorded: dict[str, Any] = json.loads((folder / path).read_text(encoding="utf-8"))
    return recorded


def _base(recorded: dict[str, Any]) -> Base:
    shapes = {name: tuple(shape) for name, shape in recorded["shapes"].items()}
    return Base(shapes, recorded["modules"], recorded["hidden"])
