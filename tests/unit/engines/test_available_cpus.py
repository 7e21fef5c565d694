"""A container's share of the machine."""

import os

import pytest

from slipway.tasks.engines.cpus import available_cpus

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", ALLOWED),
        ("50000 100000\n", 1),
        ("100000 100000\n", 1),
        ("100000000 100000\n", ALLOWED),
        ("", ALLOWED),
    ],
)
def test_the_quota_limits_the_cpus(tmp_path, text, expected):
    (tmp_path / "cpu.max").write_text(text)

    assert available_cpus(tmp_path / "cpu.max") == expected


def test_without_a_quota_the_affinity_counts(tmp_path):
    assert available_cpus(tmp_path / "absent") == ALLOWED
