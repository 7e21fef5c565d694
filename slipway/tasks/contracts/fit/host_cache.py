"""The host memory that a server keeps blocks of the KV cache in: engine.options.kv_cache_host_gib. Pure."""

from slipway.tasks.contracts.spec.spec import ReleaseSpec

HOST_CACHE = "kv_cache_host_gib"
GIB = 2**30


def host_cache_bytes(spec: ReleaseSpec) -> int:
    """Bytes of the host's memory for the cache of each GPU; 0 without the option, or before plan has checked it."""
    value = spec.engine.options.get(HOST_CACHE, 0)
    return int(value * GIB) if isinstance(value, int | float) and value > 0 else 0
