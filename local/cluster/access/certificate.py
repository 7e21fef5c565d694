"""The server's self-signed certificate. kubectl sends tokens only over TLS, so plain HTTP would not do."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .access import write_private

LIFETIME = timedelta(days=3650)


def ensure(state: Path, name: str) -> tuple[str, ssl.SSLContext]:
    """The state folder's certificate as PEM, and its TLS context. A new folder gets a certificate for `name`."""
    certificate, key = state / "server.crt", state / "server.key"
    if not certificate.exists():
        _make(certificate, key, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate.read_text(), context


def _make(certificate: Path, key: Path, common_name: str) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    valid_from = datetime.now(UTC) - timedelta(minutes=5)
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid_from)
        .not_valid_after(valid_from + LIFETIME)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(private, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    write_private(key, private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode())
    write_private(certificate, signed.public_bytes(pem).decode())
