"""The cluster that unit tests use promises what a real one does."""

import pytest

from tests.fakes.clock import ManualClock
from tests.fakes.cluster import MemoryCluster
from tests.fakes.cluster_contract import *  # noqa: F403 - its tests are collected here


@pytest.fixture
def cluster():
    return MemoryCluster(ManualClock())
