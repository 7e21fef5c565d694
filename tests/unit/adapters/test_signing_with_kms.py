"""Releases that AWS KMS signs: over HTTP, against a server that is as strict as the service."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from slipway.tasks.adapters.sign.kms import KmsSigner
from slipway.tasks.adapters.sign.signatures import Signatures
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from tests.fakes.servers.loopback_server import LoopbackServer
from tests.fakes.store.kms_server import handler_for
from tests.fakes.workspace import workspace

KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"
STATEMENT = {"predicateType": "test"}


@pytest.fixture
def kms(monkeypatch):
    """Serve a private key, and send this process's KMS requests there."""
    servers = []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "planted")

    def serve(key, **options):
        server = LoopbackServer(handler_for({KEY: key}, **options))
        servers.append(server)
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", server.__enter__().endpoint)
        return KmsSigner(KEY)

    yield serve
    for server in servers:
        server.__exit__()


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_what_kms_signed_is_verified_with_its_public_key(kms, tmp_path, curve):
    signer = kms(ec.generate_private_key(curve))
    space = workspace(tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "file").write_bytes(b"x" * 5000)  # longer than KMS takes as a message
    manifest = space.artifacts.store(
        "publish", "5" * 64, tmp_path / "made", inputs={}, producer={}, metrics={}, seconds=0
    )
    signatures = Signatures(space.store, Layout("s3://bucket"), [signer.public_key])

    signed = signatures.sign("demo-555555555555", manifest, STATEMENT, signer)

    assert signatures.verify("demo-555555555555", manifest) == signed
    assert signatures.provenance(manifest) == STATEMENT


def test_the_sites_kms_key_is_what_publish_signs_with(tmp_path, kms):
    signer = kms(ec.generate_private_key(ec.SECP256R1()))
    space = workspace(tmp_path, signing={"kms_key": KEY})

    assert replace(space, signing_key="").signer.public_key == signer.public_key


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP256K1()), rsa.generate_private_key(65537, 2048)])
def test_a_key_of_another_kind_is_refused(kms, key):
    with pytest.raises(InputError) as caught:
        _ = kms(key).public_key

    assert caught.value.what == f"{KEY} cannot sign releases"


@pytest.mark.parametrize(
    ("code", "kind"), [("AccessDeniedException", InputError), ("KMSInternalException", UnavailableError)]
)
def test_an_error_of_kms_says_whether_a_retry_can_help(kms, code, kind):
    signer = kms(ec.generate_private_key(ec.SECP256R1()), refuses=code)

    with pytest.raises(kind) as caught:
        _ = signer.public_key

    assert caught.value.found == code
