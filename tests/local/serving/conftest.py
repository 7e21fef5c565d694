"""What the tests of this folder ask for by name."""

from tests.local.serving.openai_server import api, both_api, five_api, long_api, vllm_api
from tests.local.serving.served_engine import (
    both,
    engine,
    five,
    long_server,
    make_long_repository,
    make_repository,
    make_topology,
    server,
    start_server,
)

__all__ = [
    "api",
    "both",
    "both_api",
    "engine",
    "five",
    "five_api",
    "long_api",
    "long_server",
    "make_long_repository",
    "make_repository",
    "make_topology",
    "server",
    "start_server",
    "vllm_api",
]
