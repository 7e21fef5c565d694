"""What each service account may do in the object store and with the signing key, as policies of AWS IAM. Pure.

The laptop's S3 enforces this table, so a step that needs more fails there first (local/object_store/identities.py).
"""

from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.site.signing import Signing
from slipway.tasks.contracts.site.site import ObjectStoreSite

IDENTITY_VARIABLE = "AWS_SDK_UA_APP_ID"
"""Puts the service account into the User-Agent of S3 requests, for access logs
(https://docs.aws.amazon.com/sdkref/latest/guide/feature-appid.html)."""


@dataclass(frozen=True)
class StoreAccess:
    """Keys below the site's prefix, with `*` for any text, that an account may read and write."""

    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    finds_absent: bool = True
    """Asks whether objects exist, or lists them. Without s3:ListBucket, S3 answers 403 for an object that does not."""


SIGNER = "slipway-publisher"
RELEASES, ARTIFACTS, DATASETS = "releases/*", "artifacts/*", "datasets/*"
CHANNELS, REQUESTS, NETWORK, RETENTION = "channels/*", "requests/*", "network/*", "retention/*"
ACCOUNTS: dict[str, StoreAccess] = {
    # for its pages; a model that was never released has no channel
    "slipway-airflow": StoreAccess(
        reads=(RELEASES, RETENTION, CHANNELS, "artifacts/publish/*/manifest.json", "artifacts/publish/*/model.sig"),
        writes=(REQUESTS,),
    ),
    "slipway-planner": StoreAccess(
        reads=(REQUESTS, CHANNELS, RELEASES, ARTIFACTS, DATASETS),
        # a plan records in an artifact's manifest that it relies on it
        writes=(RELEASES, DATASETS, "artifacts/*/manifest.json"),
    ),
    # of a live model's adapters these two read the request, and which release is live
    "slipway-downloader": StoreAccess(reads=(REQUESTS, CHANNELS, RELEASES, ARTIFACTS), writes=(RELEASES, ARTIFACTS)),
    "slipway-publisher": StoreAccess(reads=(REQUESTS, CHANNELS, RELEASES, ARTIFACTS), writes=(RELEASES, ARTIFACTS)),
    "slipway-builder": StoreAccess(reads=(RELEASES, ARTIFACTS, DATASETS), writes=(RELEASES, ARTIFACTS)),
    "slipway-measurer": StoreAccess(reads=(RELEASES, ARTIFACTS, DATASETS, CHANNELS), writes=(RELEASES,)),
    "slipway-deployer": StoreAccess(
        reads=(REQUESTS, RELEASES, ARTIFACTS, CHANNELS, NETWORK), writes=(RELEASES, CHANNELS, NETWORK)
    ),
    "slipway-exporter": StoreAccess(reads=(CHANNELS, RELEASES)),
    "slipway-retention": StoreAccess(
        reads=("*",),
        # marks of what it deletes, and its reports
        writes=("artifacts/*/manifest.json", "releases/*/release.json", RETENTION),
        deletes=(RELEASES, ARTIFACTS, REQUESTS, RETENTION),
    ),
    "slipway-server": StoreAccess(reads=(RELEASES, ARTIFACTS), finds_absent=False),
}


def iam_policy(account: str, store: ObjectStoreSite, signing: Signing | None = None) -> dict[str, Any]:
    """The policy document of an account: https://docs.aws.amazon.com/AmazonS3/latest/userguide/security_iam_service-with-iam.html."""
    access = ACCOUNTS[account]
    statements = [{"Sid": "Read", "Effect": "Allow", "Action": "s3:GetObject", "Resource": _keys(access.reads, store)}]
    if access.writes:
        actions = ["s3:PutObject", "s3:AbortMultipartUpload"]
        statements.append(
            {"Sid": "Write", "Effect": "Allow", "Action": actions, "Resource": _keys(access.writes, store)}
        )
    bucket = f"arn:aws:s3:::{store.bucket}"
    if access.deletes:
        keys = _keys(access.deletes, store)
        actions = ["s3:DeleteObject", "s3:AbortMultipartUpload"]
        statements.append({"Sid": "Delete", "Effect": "Allow", "Action": actions, "Resource": keys})
        actions = ["s3:ListBucketMultipartUploads", "s3:GetBucketVersioning"]
        statements.append({"Sid": "FindUploads", "Effect": "Allow", "Action": actions, "Resource": bucket})
    if access.finds_absent:
        statements.append({"Sid": "FindAbsent", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket})
    if account == SIGNER and signing is not None and signing.kms_key:
        actions = ["kms:Sign", "kms:GetPublicKey"]
        statements.append({"Sid": "SignReleases", "Effect": "Allow", "Action": actions, "Resource": signing.kms_key})
    return {"Version": "2012-10-17", "Statement": statements}


def _keys(patterns: tuple[str, ...], store: ObjectStoreSite) -> list[str]:
    root = store.root.removeprefix("s3://")
    return [f"arn:aws:s3:::{root}/{pattern}" for pattern in patterns]
