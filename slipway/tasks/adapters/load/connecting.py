"""A client of a model, by the address of its Service and the key that its pods ask for."""

from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.triton.triton import TritonClient


def connect(address: ServiceAddress, *, own_connection: bool = False) -> TritonClient:
    """A client of a Service; see TritonClient for `own_connection`."""
    http_port, grpc_port = address.ports["http"], address.ports["grpc"]
    return TritonClient(address.host, http_port, grpc_port, own_connection=own_connection, api_key=address.api_key)
