"""In how many processes the clients of a level are, by what warm-up requests tell."""

import pytest

from slipway.tasks.adapters.load.load_test import MOST_PROCESSES, Capacity, processes
from slipway.tasks.contracts.spec.load_level import LoadLevel


@pytest.mark.parametrize(
    ("clients", "capacity", "expected"),
    [
        (128, Capacity(16.0), 1),  # not measured
        (10, Capacity(16.0, 4000.0), 1),  # 1,000 chunks/s, half of 4,000 are aimed at
        (128, Capacity(16.0, 4000.0), 7),
        (128, Capacity(2.9, 4000.0), 2),
        (128, Capacity(0.5, 4000.0), 1),
        (2, Capacity(16.0, 10.0), 2),  # one client cannot be divided
        (1024, Capacity(64.0, 4000.0), MOST_PROCESSES),
    ],
)
def test_processes_for_so_many_clients_without_a_warm_up(clients, capacity, expected):
    assert processes(LoadLevel(concurrency=clients), [], capacity) == expected
