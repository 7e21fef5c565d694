"""What a client of Triton may expect of another try."""

import grpc
import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import InputError, UnavailableError

UNLOADING = "Request for unknown model: 'demo' has no available versions"


class RefusedError(grpc.RpcError):
    def __init__(self, message, code):
        self.details, self.code = lambda: message, lambda: code


class Stub:
    """A gRPC client whose server refuses everything."""

    def __init__(self, error):
        self.error = error

    def ModelConfig(self, request, **_):  # noqa: N802 - the name of the remote procedure
        raise self.error


@pytest.mark.parametrize(
    ("message", "status", "kind"),
    [
        (UNLOADING, "NOT_FOUND", UnavailableError),
        ("Request for unknown model: 'demo' is not ready", "NOT_FOUND", UnavailableError),
        ("failed to connect to all addresses", "UNKNOWN", UnavailableError),
        ("Socket closed", "UNAVAILABLE", UnavailableError),
        ("Request for unknown model: 'demo' is not found", "NOT_FOUND", InputError),
        ("Incorrect API key provided for demo", "UNAUTHENTICATED", InputError),
        ("unexpected shape for input 'max_tokens'", "INVALID_ARGUMENT", InputError),
    ],
)
def test_a_model_that_its_server_unloads_is_unavailable_and_one_that_it_never_had_is_wrong_input(message, status, kind):
    with TritonClient("127.0.0.1") as client:
        client._grpc = Stub(RefusedError(message, getattr(grpc.StatusCode, status)))

        with pytest.raises(kind) as caught:
            next(client.stream("demo", GenerateRequest("Hi?", 8), 1.0))

    assert "demo" in caught.value.what
    assert message in caught.value.what
