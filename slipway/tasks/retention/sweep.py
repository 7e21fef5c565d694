"""One run of retention: look at every artifact, then at every release, then delete what no kept release needs.

The order is the proof (docs/decisions/0026): manifests are looked at before releases are, and a plan records its
release before it relies on an artifact. So a manifest that a plan used after it was looked at has another ETag, and a
release that was recorded before that is seen.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path

from slipway.tasks.adapters.store.heads import DELETING_S, Heads
from slipway.tasks.adapters.store.object_store import StoredObject, Upload
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import Contract, canonical_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.retention import (
    Deletion,
    Kind,
    RetentionPolicy,
    RetentionReport,
    RetentionRequest,
    kept,
)
from slipway.tasks.contracts.stored.artifact import MANIFEST
from slipway.tasks.retention import listing, roots
from slipway.tasks.retention.ledger import Ledger

AT_ONCE = 1000
"""Objects of one DeleteObjects request."""

log = logging.getLogger(__name__)


class Candidate(Contract):
    """What may be deleted, kept on disk until it is known whether a release needs it."""

    deletion: Deletion
    head: str | None = None
    """ETag of its head; None: it has none."""
    upload_id: str = ""
    at: datetime


@dataclass
class Sweep:
    """One run. `scratch` holds what would not fit into memory."""

    workspace: Workspace
    policy: RetentionPolicy
    request: RetentionRequest
    ledger: Ledger
    now: datetime
    needed: set[str] = field(default_factory=set)
    """Prefixes of the artifacts of releases that are kept."""
    kept_releases: int = 0

    def run(self) -> RetentionReport:
        """Delete what the policy does not keep, artifacts first; return the report, which is also stored.

        Raises:
            InputError: a channel or a kept release cannot be read. Nothing was deleted then.
            UnavailableError: the object store or the cluster does not answer.
        """
        folder = self.workspace.scratch
        artifacts = _spill(folder / "artifacts.jsonl", self._old_artifacts())
        others = _spill(folder / "others.jsonl", self._of_models())
        unneeded = (each for each in _read(artifacts) if each.deletion.uri not in self.needed)
        self._carry_out(unneeded, MANIFEST)
        self._carry_out((each for each in _read(others) if each.deletion.kind == "release"), listing.RELEASE)
        self._carry_out((each for each in _read(others) if each.deletion.kind == "evidence"), None)
        documents = (each for each in _read(others) if each.deletion.kind == "document")
        self.ledger.carry_out((each.deletion for each in documents), self._delete_objects)
        self.ledger.carry_out((each.deletion for each in self._old_documents()), self._delete_objects)
        self._abort_uploads()
        return self._report()

    def _old_artifacts(self) -> Iterator[Candidate]:
        grace = timedelta(hours=self.policy.grace_h)
        for stage, key, folder in listing.artifacts(self.workspace.store, self.workspace.layout):
            if folder.newest and self.now - folder.newest > grace:
                yield self._candidate("artifact", folder, f"no kept release needs {stage} {key[:12]}")

    def _of_models(self) -> Iterator[Candidate]:
        """What is old of every model. The releases that stay are read here, after the artifacts were looked at."""
        names, present = roots.named(self.workspace.documents, self.workspace.cluster()), set[str]()
        for model in listing.models(self.workspace.store, self.workspace.layout):
            if isinstance(model, StoredObject):
                yield from self._old_document(model, "documents of runs")
                continue
            named = names.get(model.name, {})
            yield from self._of_model(model, named, present)
        roots.check_present(names, present)

    def _of_model(self, model: listing.Model, named: dict[str, str], present: set[str]) -> Iterator[Candidate]:
        """What is old of one model; releases that stay are added to `present`."""
        keeps, half_removed = self._kept(model, named)
        present.update(keeps)
        for folder in model.releases.values():
            if folder.release_id in half_removed:
                yield self._candidate("release", folder, "its removal was cut short")
                continue
            if folder.release_id in keeps:
                self.kept_releases += 1
                log.info("kept: release %s: %s", folder.release_id, keeps[folder.release_id])
            elif self._is_old(folder.newest):
                yield self._candidate("release", folder, f"not used for {self.policy.evidence_days} days")
                continue
            if folder.release_id not in named:
                for run in folder.evidence.values():
                    if self._is_old(run.newest):
                        yield self._candidate("evidence", run, f"older than {self.policy.evidence_days} days")

    def _kept(self, model: listing.Model, named: dict[str, str]) -> tuple[dict[str, str], set[str]]:
        """Why releases of a model stay, and the ids of those whose removal was cut short; note what the former need.

        A removal was written lately, so it looks like the newest release: without it, an older one may stay.
        """
        complete = {folder.release_id: folder.head for folder in model.releases.values() if folder.head}
        half_removed, looked_at = set[str](), set[str]()
        while True:
            facts = [model.releases[release_id].facts for release_id in complete]
            keeps = kept(facts, named, self.policy, self.now)
            if keeps.keys() <= looked_at:
                return keeps, half_removed
            for release_id in keeps.keys() - looked_at:
                needs = roots.needed_keys(complete[release_id], self.workspace.documents)
                if needs is None:
                    half_removed.add(release_id)
                    del complete[release_id]
                else:
                    self.needed |= needs
            looked_at.update(keeps)

    def _old_documents(self) -> Iterator[Candidate]:
        store, layout = self.workspace.store, self.workspace.layout
        for item in store.list(layout.requests()):
            yield from self._old_document(item, "requests of runs")
        for item in store.list(layout.retention()):
            yield from self._old_document(item, "reports of retention")

    def _old_document(self, item: StoredObject, what: str) -> Iterator[Candidate]:
        if self._is_old(item.modified_at):
            because = f"{what} are kept for {self.policy.evidence_days} days"
            deletion = Deletion(kind="document", uri=item.uri, objects=1, size_bytes=item.size_bytes, because=because)
            yield Candidate(deletion=deletion, head=item.etag, at=item.modified_at)

    def _is_old(self, newest: datetime | None) -> bool:
        age = max(timedelta(days=self.policy.evidence_days), timedelta(hours=self.policy.grace_h))
        return newest is not None and self.now - newest > age

    def _candidate(self, kind: Kind, folder: listing.Folder, because: str) -> Candidate:
        deletion = Deletion(
            kind=kind, uri=folder.uri, objects=folder.objects, size_bytes=folder.size_bytes, because=because
        )
        assert folder.newest is not None
        return Candidate(deletion=deletion, head=folder.head.etag if folder.head else None, at=folder.newest)

    def _carry_out(self, candidates: Iterable[Candidate], head: str | None) -> None:
        """Delete folders; `head` is the name of the document that is marked before and deleted last."""
        etags: dict[str, str | None] = {}

        def planned() -> Iterator[Deletion]:
            for each in candidates:
                etags[each.deletion.uri] = each.head
                yield each.deletion

        def delete(part: list[Deletion]) -> list[Deletion]:
            done = [
                self._delete_marked(each, head, etags[each.uri]) if head else self._delete_below(each) for each in part
            ]
            for each in part:
                del etags[each.uri]
            return done

        self.ledger.carry_out(planned(), delete)

    def _delete_marked(self, deletion: Deletion, head: str, etag: str | None) -> Deletion:
        heads, uri = Heads(self.workspace.store, self.workspace.clock), f"{deletion.uri}{head}"
        try:
            mark = heads.mark(uri, etag)
        except InputError as error:
            return _with(deletion, "kept", str(error))
        if mark is None:
            return _with(deletion, "kept", "it changed since it was looked at")
        refused: dict[str, str] = {}
        began = self.workspace.clock.monotonic()
        for batch in _batches(item.uri for item in self.workspace.store.list(deletion.uri) if item.uri != uri):
            if self.workspace.clock.monotonic() - began > DELETING_S:
                began, mark = self.workspace.clock.monotonic(), heads.renewed(uri, mark)
            if mark is None:
                return _with(deletion, "incomplete", "another process took the removal over")
            refused |= self.workspace.store.delete(batch)
        # the mark is deleted last: while it is there, nobody relies on what is left
        refused = refused or dict(self.workspace.store.delete([uri]))
        return _refused(deletion, refused) if refused else _with(deletion, "deleted")

    def _delete_below(self, deletion: Deletion) -> Deletion:
        """Delete a folder that has no head: a run's evidence, which only that run wrote."""
        refused: dict[str, str] = {}
        for batch in _batches(item.uri for item in self.workspace.store.list(deletion.uri)):
            refused |= self.workspace.store.delete(batch)
        return _refused(deletion, refused) if refused else _with(deletion, "deleted")

    def _delete_objects(self, part: list[Deletion]) -> list[Deletion]:
        refused = self.workspace.store.delete([each.uri for each in part])
        return [
            _refused(each, {each.uri: refused[each.uri]}) if each.uri in refused else _with(each, "deleted")
            for each in part
        ]

    def _abort_uploads(self) -> None:
        store, layout = self.workspace.store, self.workspace.layout
        grace, uploads = timedelta(hours=self.policy.grace_h), dict[str, Upload]()

        def planned() -> Iterator[Deletion]:
            # never the whole bucket: other programs may use it too
            folders = (layout.artifacts(), layout.releases())
            for upload in chain.from_iterable(map(store.uploads, folders)):
                if self.now - upload.began_at > grace:
                    uploads[upload.upload_id] = upload
                    because = f"upload {upload.upload_id} was begun {upload.began_at:%Y-%m-%d} and never completed"
                    yield Deletion(kind="upload", uri=upload.uri, objects=0, size_bytes=0, because=because)

        def abort(part: list[Deletion]) -> list[Deletion]:
            for upload in uploads.values():
                store.abort(upload)
            uploads.clear()
            return [_with(each, "deleted") for each in part]

        self.ledger.carry_out(planned(), abort)

    def _report(self) -> RetentionReport:
        store = self.workspace.store
        report = RetentionReport(
            run=self.request.run,
            dry_run=self.request.dry_run,
            policy=self.policy,
            started_at=self.now,
            ended_at=self.workspace.clock.now(),
            kept_releases=self.kept_releases,
            totals=self.ledger.totals,
            parts=tuple(self.ledger.parts),
            versioned=store.is_versioned(f"{self.workspace.layout.root}/-"),
        )
        store.put_bytes(f"{self.ledger.prefix}report.json", canonical_json(report.model_dump(mode="json")))
        return report


def _with(deletion: Deletion, outcome: str, problem: str = "") -> Deletion:
    return Deletion.model_validate({**deletion.model_dump(), "outcome": outcome, "problem": problem})


def _refused(deletion: Deletion, refused: dict[str, str]) -> Deletion:
    uri, code = next(iter(refused.items()))
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return _with(deletion, "incomplete", f"{code} for {uri}{more}")


def _batches(uris: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(uris)
    while batch := list(islice(remaining, AT_ONCE)):
        yield batch


def _spill(path: Path, candidates: Iterable[Candidate]) -> Path:
    with path.open("wb") as file:
        for each in candidates:
            file.write(canonical_json(each.model_dump(mode="json")) + b"\n")
    return path


def _read(path: Path) -> Iterator[Candidate]:
    with path.open("rb") as file:
        for line in file:
            yield Candidate.model_validate_json(line)
