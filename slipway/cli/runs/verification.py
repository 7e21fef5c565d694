"""Checks a live release from the Hub's commit to what its pods loaded, for `slipway explain --verify`.

Each link is checked against something that the object store cannot change: the Hub, the site's public keys, and what
the pods themselves said. What cannot be checked is an error, never a pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slipway.cli.runs.tables import COMMIT_DIGITS
from slipway.tasks.adapters.sign.signatures import KEY_DIGITS, VERIFIED, Signatures, Signed
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.contracts.errors import InputError, SignatureError, UnavailableError
from slipway.tasks.contracts.fit.provenance import Descriptor, dependencies, file_digest, pinned_by
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest, Stage
from slipway.tasks.contracts.stored.attestation import content_digest, subject
from slipway.tasks.contracts.stored.plan import ADAPTERS_FOLDER, DRAFT_FOLDER, Source
from slipway.tasks.contracts.stored.release import Release

REFUSED = "Do not serve it: roll back, and find out who can write to the object store."
DIGEST_DIGITS = 12


class Revisions(Protocol):
    """The part of a Hub that this needs."""

    def resolve(self, repo: str, revision: str) -> Source:
        """The files of a commit, with the Hub's own digests."""


class Pods(Protocol):
    """The part of a cluster that this needs."""

    def endpoints(self, service: str) -> set[str]:
        """Names of the ready pods behind a Service."""

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object, or None."""


@dataclass(frozen=True)
class Verification:
    """The stores and servers from which each part of the chain is read."""

    artifacts: ArtifactStore
    signatures: Signatures
    hub: Revisions
    pods: Pods

    def of(self, release: Release) -> str:
        """One line about the whole chain.

        Raises:
            SignatureError: a link does not hold.
            InputError, UnavailableError: a link cannot be checked.
        """
        key = release.plan.stages["publish"].key
        manifest = self.artifacts.find("publish", key)
        if manifest is None:
            raise InputError(f"artifact publish {key[:DIGEST_DIGITS]} of {release.id} does not exist")
        signed = self.signatures.verify(release.id, manifest)
        statement = self.signatures.provenance(manifest)
        if statement.get("subject") != [subject(release.id, manifest.files)]:
            raise _broken(f"the provenance of {release.id} is about something else", statement.get("subject"), signed)
        made_of = dependencies(statement)
        origin = self._check_sources(release, made_of)
        self._check_stages(release, manifest, made_of)
        pods = self._check_pods(release, signed)
        return (
            f"verified: {origin} → {release.id}, sha256:{signed.digest[:DIGEST_DIGITS]}, "
            f"signed by key {signed.key[:KEY_DIGITS]} → loaded by {pods} of {pods} pods"
        )

    def _check_sources(self, release: Release, made_of: Mapping[str, Descriptor]) -> str:
        """Compare the release's files with the signed ones and with the Hub's; return what they are.

        The commit is the signed one: a later plan of the same files may have recorded another in release.json.
        """
        plan, checked, origins = release.plan, 0, []
        sources = {"": plan.source}
        sources |= {f"{ADAPTERS_FOLDER}/{name}/": adapter for name, adapter in plan.adapters.items()}
        sources |= {f"{DRAFT_FOLDER}/": plan.draft} if plan.draft else {}
        for folder, source in sources.items():
            origin = made_of.get(folder.rstrip("/") or "source", {})
            repo = origin.get("annotations", {}).get("repo", source.repo)
            commit = origin.get("digest", {}).get(pinned_by(source))
            if not commit:
                raise _broken(f"the provenance of {release.id} names no commit of {repo}", "", "")
            announced = {file.path: file_digest(file) for file in self.hub.resolve(repo, commit).files}
            for file in source.files:
                signed, planned = made_of.get(f"file/{folder}{file.path}", {}).get("digest"), file_digest(file)
                if signed != planned:
                    raise _broken(f"{file.path} of {repo} is not what {release.id} was made from", planned, signed)
                if signed != announced.get(file.path):
                    what = f"{file.path} of {repo} is not what its source has at commit {commit}"
                    raise _broken(what, signed, announced.get(file.path))
            checked += len(source.files)
            origins.append(f"{repo} at commit {commit[:COMMIT_DIGITS]}")
        if not checked:
            raise InputError(f"{release.id} names no files of the Hub, so there is nothing to check")
        return f"{', '.join(origins)} ({checked} files as listed there)"

    def _check_stages(self, release: Release, published: Manifest, made_of: Mapping[str, Descriptor]) -> None:
        """Compare what publish was made from with the artifacts that are still stored, and with its own files."""
        for stage in STAGES[:-1]:
            key = release.plan.stages[stage].key
            manifest = self.artifacts.find(stage, key)
            signed = made_of.get(stage, {})
            if manifest is not None and signed and signed.get("digest") != {"sha256": content_digest(manifest.files)}:
                what = f"artifact {stage} {key[:DIGEST_DIGITS]} changed after {release.id} was signed"
                raise _broken(what, content_digest(manifest.files), signed.get("digest"))
        last: tuple[Stage, ...] = ("build", "assemble")
        keys = {stage: made_of.get(stage, {}).get("annotations", {}).get("key") for stage in last}
        if keys != published.inputs:
            raise _broken(f"{release.id} was published from other artifacts than its provenance says", keys, "")

    def _check_pods(self, release: Release, signed: Signed) -> int:
        """Compare what the pods behind the live Service loaded; return their number."""
        names = sorted(self.pods.endpoints(release.spec.name))
        if not names:
            raise UnavailableError(
                f"no pod of {release.spec.name} is ready, so nothing says what is loaded",
                remedy=f"See `slipway status {release.spec.name}`.",
            )
        for name in names:
            loaded = _loaded(self.pods.get("Pod", name) or {}, release.id)
            if loaded != signed.digest:
                raise _broken(
                    f"pod {name} did not load what {release.id} was signed as",
                    f"sha256:{loaded[:DIGEST_DIGITS]}" if loaded else "no message about a verified signature",
                    f"sha256:{signed.digest[:DIGEST_DIGITS]}",
                )
        return len(names)


def _loaded(pod: dict[str, Any], release_id: str) -> str:
    """The digest that a pod's init container verified for a release; empty where it says none."""
    for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated") or {}
        message = ended.get("message") or ""
        verified = VERIFIED.search(message)
        if verified and f" {release_id} is at " in message and ended.get("exitCode") == 0:
            return verified["digest"]
    return ""


def _broken(what: str, found: object, expected: object) -> SignatureError:
    return SignatureError(what, found=found or "nothing", expected=expected, remedy=REFUSED)
