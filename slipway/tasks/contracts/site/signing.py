"""How a site signs releases, and whose signatures its serving pods accept. Pure.

Keys are on the NIST curves P-256, P-384 or P-521, which OpenSSF model-signing, AWS KMS and PKCS#11 modules share.
"""

import base64
import binascii
import hashlib
import textwrap
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.kubernetes_text import ObjectName

KEY_VARIABLE = "SLIPWAY_SIGNING_KEY"
"""Environment variable with the private key, in the pods of publish and sign-adapters alone."""
SECRET_KEY = "private.pem"  # noqa: S105 - a name
MAX_PUBLIC_KEYS = 10

PEM_HEADER, PEM_FOOTER = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
PEM_LINE = 64
PREFIXES = {
    bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200"): 65,
    bytes.fromhex("3076301006072a8648ce3d020106052b81040022036200"): 97,
    bytes.fromhex("30819b301006072a8648ce3d020106052b8104002303818600"): 133,
}
"""How a SubjectPublicKeyInfo of each curve begins (RFC 5480), and how many bytes its point has."""


def _public_key(text: str) -> str:
    """Check that a text is a public key in PEM, and write it the one way that its fingerprint is made of."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if not lines or (lines[0], lines[-1]) != (PEM_HEADER, PEM_FOOTER):
        raise ValueError(f"a public key in PEM begins with {PEM_HEADER} and ends with {PEM_FOOTER}")
    try:
        der = base64.b64decode("".join(lines[1:-1]), validate=True)
    except binascii.Error as error:
        raise ValueError("the lines of a public key in PEM are base64") from error
    if not any(der.startswith(prefix) and len(der) == len(prefix) + size for prefix, size in PREFIXES.items()):
        raise ValueError("a public key is an uncompressed point on the curve P-256, P-384 or P-521")
    return pem_of(der)


def pem_of(der: bytes) -> str:
    """A public key in PEM, from its SubjectPublicKeyInfo."""
    return "\n".join([PEM_HEADER, *textwrap.wrap(base64.b64encode(der).decode(), PEM_LINE), PEM_FOOTER, ""])


def der_of(public_key: str) -> bytes:
    """The SubjectPublicKeyInfo of a public key in PEM."""
    return base64.b64decode("".join(public_key.strip().splitlines()[1:-1]))


def fingerprint(public_key: str) -> str:
    """What names a public key: the sha256 of its PEM, which OpenSSF model-signing writes into a signature."""
    return hashlib.sha256(public_key.encode()).hexdigest()


PublicKey = Annotated[str, AfterValidator(_public_key)]
KmsKey = Annotated[
    str,
    StringConstraints(pattern=r"^arn:aws[a-z-]{0,20}:kms:[a-z0-9-]{1,40}:[0-9]{12}:key/[A-Za-z0-9-]{1,128}$"),
]
"""The ARN of a key; an alias cannot be the resource of an IAM policy."""


class Signing(UserDocument):
    """Who signs releases at publish, and whose signatures serving pods accept."""

    key_secret: ObjectName | None = Field(
        default=None,
        description=f"Secret in the pipeline's namespace whose key {SECRET_KEY} is the private key that publish signs "
        "with, in PEM (PKCS #8, not encrypted)",
    )
    kms_key: KmsKey | None = Field(
        default=None,
        description="ARN of an AWS KMS key for ECDSA (ECC_NIST_P256, P384 or P521) that publish signs with",
    )
    public_keys: tuple[PublicKey, ...] = Field(
        default=(),
        max_length=MAX_PUBLIC_KEYS,
        description="in PEM; a release starts only if one of them verifies its signature. Empty: nothing is verified",
    )

    @model_validator(mode="after")
    def _names_a_key(self) -> Self:
        if self.key_secret and self.kms_key:
            raise ValueError("key_secret and kms_key are two keys; name the one that publish signs with")
        if not self.signs and not self.public_keys:
            raise ValueError("name key_secret or kms_key to sign, public_keys to verify, or leave signing out")
        if len(set(self.public_keys)) < len(self.public_keys):
            raise ValueError("public_keys has the same key twice")
        return self

    @property
    def signs(self) -> bool:
        """Whether publish signs."""
        return bool(self.key_secret or self.kms_key)

    @property
    def verifies(self) -> bool:
        """Whether serving pods verify."""
        return bool(self.public_keys)
