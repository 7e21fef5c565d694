"""Signs with a key in AWS KMS, which never leaves it. The pod's cloud identity needs kms:Sign and kms:GetPublicKey."""

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import botocore.exceptions
from botocore.config import Config
from typing_extensions import override

from slipway.tasks.adapters.sign.signatures import Signer, hash_bits
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.signing import der_of, pem_of

REFUSED = frozenset(
    {
        "AccessDeniedException",
        "DisabledException",
        "InvalidClientTokenId",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
TIMEOUT_S = 10


class KmsSigner(Signer):
    """Sends digests to KMS and gets signatures back."""

    def __init__(self, key: str) -> None:
        """`key` is the ARN, whose region is the client's. AWS_ENDPOINT_URL_KMS names another endpoint."""
        self._key = key
        config = Config(connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, retries={"mode": "standard"})
        self._client = boto3.client("kms", region_name=key.split(":")[3], config=config)

    @functools.cached_property
    @override
    def public_key(self) -> str:
        with self._translated():
            der: bytes = self._client.get_public_key(KeyId=self._key)["PublicKey"]
        if hash_bits(der) is None:
            raise InputError(
                f"{self._key} cannot sign releases",
                expected="a key for SIGN_VERIFY with key spec ECC_NIST_P256, ECC_NIST_P384 or ECC_NIST_P521",
                remedy="Name another key in signing.kms_key of the site file.",
            )
        return pem_of(der)

    @override
    def sign(self, message: bytes) -> bytes:
        bits = hash_bits(der_of(self.public_key))
        with self._translated():
            answer = self._client.sign(
                KeyId=self._key,
                Message=hashlib.new(f"sha{bits}", message).digest(),
                MessageType="DIGEST",
                SigningAlgorithm=f"ECDSA_SHA_{bits}",
            )
        signature: bytes = answer["Signature"]
        return signature

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except botocore.exceptions.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in REFUSED:
                raise InputError(
                    f"AWS KMS refuses to sign with {self._key}",
                    found=code,
                    remedy="Check that the key is enabled, and that the identity of slipway-publisher may kms:Sign and "
                    "kms:GetPublicKey (`slipway setup --iam-policies`).",
                ) from error
            raise UnavailableError("AWS KMS did not sign", found=code, remedy="Run publish again.") from error
        except botocore.exceptions.NoCredentialsError as error:
            raise InputError(
                "there are no credentials for AWS KMS",
                remedy="Give the service account slipway-publisher a cloud identity.",
            ) from error
        except botocore.exceptions.BotoCoreError as error:
            raise UnavailableError(
                "AWS KMS did not answer", found=type(error).__name__, remedy="Run publish again."
            ) from error
