"""Key pairs that sign releases, made when a test asks for them."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


class SigningKey:
    """A private key on a curve, with both of its halves in PEM."""

    def __init__(self, curve=None):
        key = ec.generate_private_key(curve or ec.SECP256R1())
        self.private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        self.public = (
            key.public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            .decode()
        )
