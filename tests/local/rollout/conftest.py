"""The fixtures of the embedded cluster with stand-ins for Triton."""

from tests.local.stand_in_cluster import (  # noqa: F401 - fixtures
    asking,
    cluster,
    gateway,
    keeping,
    server,
    site,
    workspace,
)
