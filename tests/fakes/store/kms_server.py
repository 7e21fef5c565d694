"""AWS KMS as far as signing goes: GetPublicKey and Sign of JSON 1.1, as strict about digests as the service is.

moto signs a digest as if it were a message (moto/kms/models.py, "DIGEST is not yet implemented"), so it is not used.
https://docs.aws.amazon.com/kms/latest/APIReference/API_Sign.html
"""

import base64
import json
from http.server import BaseHTTPRequestHandler

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ALGORITHMS = {
    "secp256r1": ("ECDSA_SHA_256", hashes.SHA256()),
    "secp384r1": ("ECDSA_SHA_384", hashes.SHA384()),
    "secp521r1": ("ECDSA_SHA_512", hashes.SHA512()),
}


class RefusedError(Exception):
    """An error with the code that the service answers."""


def handler_for(keys, refuses=None):
    """A request handler that has `keys`, private keys by ARN. `refuses`: the error code of every answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer, status = self._answer(body), 200
            except RefusedError as error:
                answer, status = {"__type": str(error), "message": "refused"}, 400
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _answer(self, body):
            if refuses:
                raise RefusedError(refuses)
            if body["KeyId"] not in keys:
                raise RefusedError("NotFoundException")
            key = keys[body["KeyId"]]
            if self.headers["X-Amz-Target"] == "TrentService.GetPublicKey":
                der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
                return {"KeyId": body["KeyId"], "PublicKey": base64.b64encode(der).decode()}
            assert self.headers["X-Amz-Target"] == "TrentService.Sign"
            algorithm, digest = ALGORITHMS[key.curve.name]
            message = base64.b64decode(body["Message"])
            if body["SigningAlgorithm"] != algorithm:
                raise RefusedError("InvalidKeyUsageException")
            if body["MessageType"] != "DIGEST" or len(message) != digest.digest_size:
                raise RefusedError("ValidationException")
            signature = key.sign(message, ec.ECDSA(Prehashed(digest)))
            return {"KeyId": body["KeyId"], "Signature": base64.b64encode(signature).decode()}

        def log_message(self, *_):
            pass

    return Handler
