"""What a client of Triton may expect of another try."""

import pytest
from tritonclient.utils import InferenceServerException

from tasks.adapters.generate_request import GenerateRequest
from tasks.adapters.triton import TritonClient
from tasks.contracts.errors import InputError, UnavailableError

UNLOADING = "Request for unknown model: 'demo' has no available versions"


class Stub:
    """A gRPC client whose server refuses everything."""

    def __init__(self, error):
        self.error = error

    def get_model_config(self, model, *, as_json, client_timeout):
        raise self.error

    def close(self):
        pass


@pytest.mark.parametrize(
    ("message", "status", "kind"),
    [
        (UNLOADING, "StatusCode.NOT_FOUND", UnavailableError),
        ("Request for unknown model: 'demo' is not ready", "StatusCode.NOT_FOUND", UnavailableError),
        ("failed to connect to all addresses", "StatusCode.UNKNOWN", UnavailableError),
        ("Socket closed", "StatusCode.UNAVAILABLE", UnavailableError),
        ("Request for unknown model: 'demo' is not found", "StatusCode.NOT_FOUND", InputError),
        ("unexpected shape for input 'max_tokens'", "StatusCode.INVALID_ARGUMENT", InputError),
    ],
)
def test_a_model_that_its_server_unloads_is_unavailable_and_one_that_it_never_had_is_wrong_input(message, status, kind):
    with TritonClient("127.0.0.1") as client:
        client._grpc.close()
        client._grpc = Stub(InferenceServerException(message, status=status))

        with pytest.raises(kind) as caught:
            next(client.stream("demo", GenerateRequest("Hi?", 8), 1.0))

    assert "demo" in caught.value.what
    assert message in caught.value.what
