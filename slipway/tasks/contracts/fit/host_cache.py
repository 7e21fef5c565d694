"""The host memory that a server keeps blocks of the KV cache in: engine.options.kv_cache_host_gib. Pure."""

from math import ceil

from slipway.tasks.contracts.site.site import PodShape, quantity
from slipway.tasks.contracts.spec.spec import ReleaseSpec

HOST_CACHE = "kv_cache_host_gib"
GIB, MIB = 2**30, 2**20


def host_cache_bytes(spec: ReleaseSpec) -> int:
    """Bytes of the host's memory for the cache of each GPU; 0 without the option, or before plan has checked it."""
    value = spec.engine.options.get(HOST_CACHE, 0)
    return int(value * GIB) if isinstance(value, int | float) and value > 0 else 0


def with_memory(shape: PodShape, more_bytes: int) -> PodShape:
    """The shape with this much memory added to what it requests."""
    if not more_bytes:
        return shape
    memory = f"{ceil((quantity(shape.memory) + more_bytes) / MIB)}Mi"
    return shape.model_copy(update={"memory": memory})
