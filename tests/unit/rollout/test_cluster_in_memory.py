"""The cluster that unit tests use promises what a real one does."""

import copy
from datetime import timedelta

import pytest

from tests.fakes.clock import ManualClock
from tests.fakes.kube.cluster import MemoryCluster
from tests.fakes.kube.cluster_contract import *  # noqa: F403 - its tests are collected here


@pytest.fixture
def cluster():
    return MemoryCluster(ManualClock())


@pytest.fixture
def misled(cluster):
    same = copy.copy(cluster)
    same.clock = ManualClock(cluster.clock.began + timedelta(hours=2))
    return same
