"""What the tests of this folder ask for by name."""

from tests.local.serving.openai_server import api, five_api, llmapi_api, long_api
from tests.local.serving.served_engine import (
    engine,
    five,
    llmapi,
    long_server,
    make_long_repository,
    make_repository,
    make_topology,
    server,
    start_server,
)

__all__ = [
    "api",
    "engine",
    "five",
    "five_api",
    "llmapi",
    "llmapi_api",
    "long_api",
    "long_server",
    "make_long_repository",
    "make_repository",
    "make_topology",
    "server",
    "start_server",
]
