"""What the tests of this folder ask for by name."""

from tests.local.serving.served_engine import (
    engine,
    make_long_repository,
    make_repository,
    make_topology,
    server,
    start_server,
)

__all__ = ["engine", "make_long_repository", "make_repository", "make_topology", "server", "start_server"]
