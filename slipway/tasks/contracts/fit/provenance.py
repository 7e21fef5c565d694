"""Describes where a published artifact came from: SLSA provenance 1.0 in an in-toto statement. Pure.

https://slsa.dev/spec/v1.0/provenance and https://github.com/in-toto/attestation/blob/main/spec/v1/digest_set.md
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest, Stage
from slipway.tasks.contracts.stored.attestation import STATEMENT_TYPE, Statement, content_digest, subject
from slipway.tasks.contracts.stored.plan import ADAPTERS_FOLDER, DRAFT_FOLDER, DatasetFile, HubFile, Source
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.contracts.version import VERSION

PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://slipway.dev/release/v1"
"""Parameters: externalParameters.spec is the release spec; internalParameters are the keys and tools of its stages."""
BUILDER = "https://slipway.dev/site/"
DIGEST_NAMES = {"sha256": "sha256", "git-sha1": "gitBlob", "etag": "s3ETag", "stat": "fileStat"}
"""In-toto's names for the digests of HubFile; its digest sets may hold others (digest_set.md, Supported algorithms)."""
GIT_COMMIT = "gitCommit"
LISTINGS = {"s3": "s3Listing", "pvc": "volumeListing"}
"""Names for the commit of a repository, and for the digest of what plan saw in a folder, by the scheme of its URI."""

Descriptor = dict[str, Any]
"""An in-toto ResourceDescriptor."""


def provenance(
    release: Release, published: Manifest, stages: Mapping[Stage, Manifest], site: Site, now: datetime
) -> Statement:
    """The statement about `published`.

    Args:
        release: the release.
        published: the artifact, whose files are the statement's subject.
        stages: the artifacts that it was made from; those that retention deleted are absent.
        site: where the steps ran.
        now: when publish ended.
    """
    plan = release.plan
    return {
        "_type": STATEMENT_TYPE,
        "subject": [subject(release.id, published.files)],
        "predicateType": PROVENANCE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"spec": release.spec.model_dump(mode="json"), "revision": plan.source.revision},
                "internalParameters": {
                    "stages": {stage: _stage(release, stage, stages.get(stage)) for stage in STAGES},
                    "forced": plan.forced,
                },
                "resolvedDependencies": list(_dependencies(release, stages, site)),
            },
            "runDetails": {
                "builder": {"id": f"{BUILDER}{site.name}", "version": {"slipway": VERSION}},
                "metadata": {
                    "invocationId": plan.run,
                    "startedOn": _time(release.created_at),
                    "finishedOn": _time(now),
                },
            },
        },
    }


def hub_uri(endpoint: str, repo: str, commit: str) -> str:
    """A repository at a commit, in the form of an SPDX download location."""
    return f"git+{endpoint.rstrip('/')}/{repo}@{commit}"


def dependencies(statement: Statement) -> dict[str, Descriptor]:
    """The resolved dependencies of a statement, by name; empty where it is no provenance."""
    definition = (statement.get("predicate") or {}).get("buildDefinition") or {}
    return {str(each.get("name")): each for each in definition.get("resolvedDependencies") or []}


def pinned_by(source: Source) -> str:
    """In-toto's name for the digest that a source's commit is."""
    return LISTINGS.get(source.repo.partition("://")[0], GIT_COMMIT)


def file_digest(file: HubFile) -> dict[str, str]:
    """A Hub file's digest as in-toto writes it."""
    algorithm, _, digest = file.digest.partition(":")
    return {DIGEST_NAMES[algorithm]: digest}


def _stage(release: Release, stage: Stage, manifest: Manifest | None) -> dict[str, Any]:
    planned = release.plan.stages[stage]
    producer = manifest.producer if manifest else planned.producer
    return {"key": planned.key, "producer": producer}


def _image(release: Release, stage: Stage, site: Site) -> str:
    assert stage != "adapter"
    """Image that a stage was made in: the site file may have changed since."""
    return release.plan.stages[stage].producer.get("image") or ResolvedRelease(release.spec, site).step_image(stage)


def _dependencies(release: Release, stages: Mapping[Stage, Manifest], site: Site) -> Iterator[Descriptor]:
    plan, endpoint = release.plan, site.hub.endpoint
    yield from _repository("source", "", plan.source, endpoint)
    for name, adapter in plan.adapters.items():
        yield from _repository(f"{ADAPTERS_FOLDER}/{name}", f"{ADAPTERS_FOLDER}/{name}/", adapter, endpoint)
    if plan.draft is not None:
        yield from _repository(DRAFT_FOLDER, f"{DRAFT_FOLDER}/", plan.draft, endpoint)
    for role, dataset in _datasets(release):
        uri = f"{hub_uri(endpoint, f'datasets/{dataset.repo}', dataset.commit)}#{dataset.file.path}"
        yield {"name": f"dataset/{role}", "uri": uri, "digest": file_digest(dataset.file)}
    for stage, manifest in stages.items():
        digest = {"sha256": content_digest(manifest.files)}
        yield {"name": stage, "digest": digest, "annotations": {"key": manifest.key, "seconds": manifest.seconds}}
    for image in sorted({_image(release, stage, site) for stage in STAGES}):
        name, _, pinned = image.partition("@sha256:")
        yield {"name": f"image/{name}", "uri": f"docker://{image}"} | ({"digest": {"sha256": pinned}} if pinned else {})


def _repository(name: str, folder: str, source: Source, endpoint: str) -> Iterator[Descriptor]:
    uri, separator = (source.repo, "/") if source.is_folder else (hub_uri(endpoint, source.repo, source.commit), "#")
    yield {"name": name, "uri": uri, "digest": {pinned_by(source): source.commit}, "annotations": {"repo": source.repo}}
    for file in source.files:
        uri_of_file = f"{uri}{separator}{file.path}"
        yield {"name": f"file/{folder}{file.path}", "uri": uri_of_file, "digest": file_digest(file)}


def _datasets(release: Release) -> Iterator[tuple[str, DatasetFile]]:
    pinned = release.plan.datasets
    names = ("calibration", "quality", "perplexity", "load_prompts")
    roles: dict[str, DatasetFile | None] = {name: getattr(pinned, name) for name in names}
    yield from ((role, dataset) for role, dataset in (roles | pinned.harness_questions).items() if dataset is not None)


def _time(at: datetime) -> str:
    """RFC 3339 in UTC, as the SLSA schema requires."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
