"""What these tests ask for by name, and after how long one counts as hung."""

import pytest

from .server import TESTS, cluster, own_cluster, space, space_in, until_fixture

__all__ = ["cluster", "own_cluster", "space", "space_in", "until_fixture"]
TIMEOUT_S = 1200


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(TESTS) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
