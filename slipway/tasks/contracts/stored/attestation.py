"""What is signed about a release, and the bundle that holds a signature. Pure.

The format is that of OpenSSF model-signing 1.x: an in-toto statement that lists every file with its sha256, in a DSSE
envelope, in a Sigstore bundle. `model_signing verify key` accepts it (docs/decisions/0031).
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from slipway.tasks.contracts.base import Contract, canonical_json
from slipway.tasks.contracts.stored.artifact import MANIFEST, File, Manifest

SIGNATURE, PROVENANCE = "model.sig", "provenance.sigstore.json"
"""Files beside an artifact's manifest."""
ATTESTATIONS = (SIGNATURE, PROVENANCE)

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
SIGNATURE_TYPE = "https://model_signing/signature/v1.0"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def _base64(text: str) -> str:
    base64.b64decode(text, validate=True)
    return text


Base64 = Annotated[str, AfterValidator(_base64)]
Statement = dict[str, Any]


class PublicKeyIdentifier(Contract):
    """Names the key of a signature."""

    hint: str = Field(pattern=r"^[0-9a-f]{64}$", description="sha256 of the public key's PEM")


class VerificationMaterial(Contract):
    """What a verifier needs besides its own keys."""

    publicKey: PublicKeyIdentifier  # noqa: N815 - the bundle's own spelling, here and below
    tlogEntries: tuple[dict[str, Any], ...] = ()  # noqa: N815


class EnvelopeSignature(Contract):
    """One signature of an envelope."""

    sig: Base64
    keyid: str = ""


class Envelope(Contract):
    """A DSSE envelope: https://github.com/secure-systems-lab/dsse."""

    payload: Base64
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815
    signatures: tuple[EnvelopeSignature, ...] = Field(min_length=1, max_length=1)


class Bundle(Contract):
    """A Sigstore bundle that was signed by a key: https://docs.sigstore.dev/about/bundle/."""

    if_invalid = "Publish the release again; somebody else may have written this file."

    mediaType: Literal["application/vnd.dev.sigstore.bundle.v0.3+json"]  # noqa: N815
    verificationMaterial: VerificationMaterial  # noqa: N815
    dsseEnvelope: Envelope  # noqa: N815

    @property
    def payload(self) -> bytes:
        """The statement as it was signed."""
        return base64.b64decode(self.dsseEnvelope.payload)

    @property
    def signature(self) -> bytes:
        """The signature, in DER."""
        return base64.b64decode(self.dsseEnvelope.signatures[0].sig)


def pack(payload: bytes, signature: bytes, key_fingerprint: str) -> bytes:
    """The bundle of a payload and its signature over `signed_bytes(payload)`."""
    envelope = Envelope(
        payload=base64.b64encode(payload).decode(),
        payloadType=PAYLOAD_TYPE,
        signatures=(EnvelopeSignature(sig=base64.b64encode(signature).decode()),),
    )
    material = VerificationMaterial(publicKey=PublicKeyIdentifier(hint=key_fingerprint))
    bundle = Bundle(mediaType=BUNDLE_TYPE, verificationMaterial=material, dsseEnvelope=envelope)
    return canonical_json(bundle.model_dump(mode="json"))


def signed_bytes(payload: bytes) -> bytes:
    """What is signed of a payload: its pre-authentication encoding, as DSSE 1.0 defines it."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def ordered(files: Sequence[File]) -> list[File]:
    """Files in the order of model-signing: by the parts of their paths."""
    return sorted(files, key=lambda file: PurePosixPath(file.path).parts)


def content_digest(files: Sequence[File]) -> str:
    """The one digest of an artifact's files: sha256 over the sha256 of each, in the order of their paths."""
    return hashlib.sha256(b"".join(bytes.fromhex(file.sha256) for file in ordered(files))).hexdigest()


def subject(name: str, files: Sequence[File]) -> dict[str, Any]:
    """The subject of a statement about these files."""
    return {"name": name, "digest": {"sha256": content_digest(files)}}


def signature_statement(release_id: str, manifest: Manifest) -> Statement:
    """What publish signs: the release, its artifact and the digest of each of its files.

    Without the release and the artifact, another release's files with their own manifest and signature would pass.
    """
    resources = [{"name": file.path, "algorithm": "sha256", "digest": file.sha256} for file in ordered(manifest.files)]
    serialization = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": [MANIFEST, *ATTESTATIONS],  # so that a downloaded copy verifies as it is
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": [subject(release_id, manifest.files)],
        "predicateType": SIGNATURE_TYPE,
        "predicate": {
            "serialization": serialization,
            "resources": resources,
            "slipway": {
                "artifact": f"{manifest.stage}/{manifest.key}",
                # pods verify these: unsigned, whoever can change the manifest could make changed bytes match
                "blake3": {file.path: file.blake3 for file in ordered(manifest.files) if file.blake3},
            },
        },
    }


def difference(signed: Statement, expected: Statement) -> str:
    """What a signed statement says otherwise than expected, as one phrase; empty when they agree.

    Parts of the predicate that model-signing does not know are compared only where Slipway wrote them.
    """
    for part in ("_type", "predicateType"):
        if signed.get(part) != expected[part]:
            return f"{part} {signed.get(part)}"
    if (found := _names(signed)) != (wanted := _names(expected)):
        return f"it was made for {found}, not for {wanted}"
    predicate = signed.get("predicate") or {}
    if (artifact := (predicate.get("slipway") or {}).get("artifact")) != expected["predicate"]["slipway"]["artifact"]:
        return f"it was made for artifact {artifact}"
    theirs, ours = _digests(predicate), _digests(expected["predicate"])
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            return (
                f"{name} is {ours.get(name, 'absent')[:12]} in the manifest, {theirs.get(name, 'absent')[:12]} signed"
            )
    blake3 = (predicate.get("slipway") or {}).get("blake3") or {}
    for name, digest in expected["predicate"]["slipway"]["blake3"].items():
        if blake3.get(name) != digest:
            return f"{name} has BLAKE3 {digest[:12]} in the manifest, {str(blake3.get(name, 'none'))[:12]} signed"
    return "" if signed.get("subject") == expected["subject"] else "the digest of all files differs"


def read_statement(payload: bytes) -> Statement:
    """The statement of a payload whose signature was verified."""
    statement = json.loads(payload)
    return statement if isinstance(statement, dict) else {}


def _names(statement: Statement) -> str:
    return ", ".join(str(each.get("name")) for each in statement.get("subject") or [])


def _digests(predicate: dict[str, Any]) -> dict[str, str]:
    return {str(each.get("name")): str(each.get("digest")) for each in predicate.get("resources") or []}
