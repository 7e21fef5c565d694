"""Signs releases and verifies their signatures: the only user of the cryptography package.

Signatures lie beside the artifact's manifest. OpenSSF model-signing is not imported, only its format is written and
read (docs/decisions/0031).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import override

from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.errors import InputError, SignatureError
from slipway.tasks.contracts.site.signing import KEY_VARIABLE, SECRET_KEY, fingerprint, pem_of
from slipway.tasks.contracts.stored.artifact import Layout, Manifest
from slipway.tasks.contracts.stored.attestation import (
    PROVENANCE,
    SIGNATURE,
    Bundle,
    Statement,
    content_digest,
    difference,
    pack,
    read_statement,
    signature_statement,
    signed_bytes,
)

KEY_DIGITS = 12
VERIFIED = re.compile(r"\bsha256:(?P<digest>[0-9a-f]{64}), signed by key ")
"""How the message of a pod that verified a signature names the digest: what str(Signed) writes."""
HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
"""The hash for each curve; model-signing and AWS KMS choose the same."""


class Signer(Protocol):
    """Has a private key, here or in a service."""

    @property
    def public_key(self) -> str:
        """The public key in PEM."""

    def sign(self, message: bytes) -> bytes:
        """The ECDSA signature of a message, in DER, with the hash that HASHES names."""


class KeySigner(Signer):
    """Signs with a private key in memory."""

    def __init__(self, pem: str) -> None:
        """Read the key.

        Raises:
            InputError: it is not an unencrypted private key on a supported curve. No message shows any of it.
        """
        try:
            key = serialization.load_pem_private_key(pem.encode(), None)
        except (ValueError, TypeError):  # without its cause, which may quote what it could not parse
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name not in HASHES:
            raise InputError(
                f"the private key in {KEY_VARIABLE} cannot sign",
                expected="PEM of an unencrypted private key on the curve P-256, P-384 or P-521",
                remedy=f"Make one as docs/day-two.md shows, and put it into {SECRET_KEY} of the Secret.",
            )
        self._key = key

    @property
    @override
    def public_key(self) -> str:
        return _pem(self._key.public_key())

    @override
    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message, ec.ECDSA(HASHES[self._key.curve.name]))


@dataclass(frozen=True)
class Signed:
    """A signature that was verified."""

    key: str
    """Fingerprint of the public key."""
    digest: str
    """The digest of all files (attestation.content_digest)."""

    def __str__(self) -> str:
        return f"sha256:{self.digest}, signed by key {self.key[:KEY_DIGITS]}"


class Signatures:
    """The signatures of published artifacts in a store."""

    def __init__(self, store: ObjectStore, layout: Layout, public_keys: Sequence[str]) -> None:
        """`public_keys`: those whose signatures are accepted, in PEM."""
        self._store, self._layout, self._public_keys = store, layout, tuple(public_keys)

    def sign(self, release_id: str, manifest: Manifest, provenance: Statement | None, signer: Signer) -> Signed:
        """Write the provenance of an artifact, if there is one, and its signature.

        Raises:
            InputError: serving pods would refuse this key's signatures.
        """
        key = fingerprint(signer.public_key)
        if self._public_keys and signer.public_key not in self._public_keys:
            raise InputError(
                "the key that signs is not in signing.public_keys of the site, so no pod would start the release",
                found=f"a key with fingerprint {key[:KEY_DIGITS]}",
                expected=" or ".join(fingerprint(known)[:KEY_DIGITS] for known in self._public_keys),
                remedy="Add its public key to signing.public_keys, or sign with the other key.",
            )
        statement = signature_statement(release_id, manifest)
        for name, signed in ((PROVENANCE, provenance), (SIGNATURE, statement)):
            if signed is None:
                continue
            payload = canonical_json(signed)
            bundle = pack(payload, signer.sign(signed_bytes(payload)), key)
            self._store.put_bytes(self._uri(manifest, name), bundle)
        return Signed(key, content_digest(manifest.files))

    def verify(self, release_id: str, manifest: Manifest) -> Signed:
        """Check that an accepted key signed exactly these files for this release.

        Raises:
            SignatureError: the signature is missing, foreign, damaged, or about something else.
        """
        uri = self._uri(manifest, SIGNATURE)
        key, statement = self._read(uri)
        if found := difference(statement, signature_statement(release_id, manifest)):
            raise SignatureError(
                f"{release_id}: {uri} does not match the release",
                found=found,
                remedy="Something changed after it was published. Run the release again with force, and find out who "
                "can write to the object store.",
            )
        return Signed(key, content_digest(manifest.files))

    def provenance(self, manifest: Manifest) -> Statement:
        """The provenance of an artifact.

        Raises:
            SignatureError: it is missing, or no accepted key signed it.
        """
        return self._read(self._uri(manifest, PROVENANCE))[1]

    def is_signed(self, release_id: str, manifest: Manifest) -> bool:
        """Whether an artifact need not be signed again: where keys are accepted, by one of them."""
        if not self._public_keys:
            return self._store.exists(self._uri(manifest, SIGNATURE))
        try:
            self.verify(release_id, manifest)
        except SignatureError:
            return False
        return True

    def _read(self, uri: str) -> tuple[str, Statement]:
        """The fingerprint of the key that signed a statement, and the statement."""
        try:
            data = self._store.read_bytes(uri)
        except InputError as error:  # servers may not list the bucket: S3 answers them 403 for an absent object
            raise SignatureError(
                f"there is no signature that can be read at {uri}",
                found=error.what,
                remedy="Run publish again at a site that signs. If the release was copied here, copy its signature.",
            ) from error
        try:
            bundle = read_contract_json(Bundle, data, uri)
        except InputError as error:
            raise SignatureError(error.what, expected=error.expected, remedy=error.remedy) from error
        hint = bundle.verificationMaterial.publicKey.hint
        keys = {fingerprint(public_key): public_key for public_key in self._public_keys}
        if hint not in keys:
            raise SignatureError(
                f"{uri} was signed by a foreign key",
                found=f"fingerprint {hint[:KEY_DIGITS]}",
                expected=" or ".join(name[:KEY_DIGITS] for name in keys),
                remedy="If you trust that key, add it to signing.public_keys of the site; otherwise publish again.",
            )
        if not _verifies(keys[hint], bundle):
            raise SignatureError(
                f"{uri} is not a signature of its content",
                found=f"no match with key {hint[:KEY_DIGITS]}",
                remedy="It was changed after it was signed. Publish the release again, and find out who can write to "
                "the object store.",
            )
        return hint, read_statement(bundle.payload)

    def _uri(self, manifest: Manifest, name: str) -> str:
        return f"{self._layout.artifact(manifest.stage, manifest.key)}/{name}"


def _verifies(public_key: str, bundle: Bundle) -> bool:
    key = serialization.load_pem_public_key(public_key.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)  # the site's contract admits no other
    try:
        key.verify(bundle.signature, signed_bytes(bundle.payload), ec.ECDSA(HASHES[key.curve.name]))
    except InvalidSignature:
        return False
    return True


def _pem(key: ec.EllipticCurvePublicKey) -> str:
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem_of(der)


def hash_bits(der: bytes) -> int | None:
    """Bits of the hash that a public key signs with; None for a key that cannot sign releases."""
    key = serialization.load_der_public_key(der)
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in HASHES:
        return None
    return 8 * HASHES[key.curve.name].digest_size
