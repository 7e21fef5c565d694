"""The directory is the tier: it decides after how long a test counts as hung. A test outside a tier is an error."""

import functools
import sys

import pytest

from tests.support.late_imports import import_parsers_at_first_use
from tests.support.paths import REPOSITORY

import_parsers_at_first_use()

TIMEOUT_S = {"unit": 300, "contracts": 300, "dags": 600, "local": 1200, "airflows": 1800, "vllm": 1800}


def pytest_collection_modifyitems(items):
    for item in items:
        tier = item.path.relative_to(REPOSITORY / "tests").parts[0]
        if tier not in TIMEOUT_S:
            raise pytest.UsageError(f"{item.nodeid}: {tier} is no tier; there are {', '.join(TIMEOUT_S)}")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S[tier]))


def pytest_collection_finish():
    """Let all clients of AWS share what botocore reads of its services: for each of them that would take 0.1 s of a CPU."""
    if of_botocore := sys.modules.get("botocore.session"):
        of_botocore.create_loader = functools.cache(of_botocore.create_loader)
