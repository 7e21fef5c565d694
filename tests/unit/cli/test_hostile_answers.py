"""Commands end in time and explain themselves, whatever a server answers, a file holds or a disk takes."""

import random

import pytest

from tests.hostile_cli import run

CASES = 24


@pytest.mark.timeout(1200)  # six rounds of commands that may take 150 s each
def test_a_sample_of_wrong_answers_odd_files_and_full_disks():
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")

    broken, total = run(CASES, seed)

    assert total == 2 * CASES
    assert not broken
