"""Commands end in time and explain themselves, whatever a server answers, a file holds or a disk takes."""

import random

import pytest

from tests.hostile_cli import SLOWEST, TRITON_COMMANDS, run

CASES = 24


@pytest.mark.timeout(1200)  # seven rounds of commands that may take 150 s each
def test_a_sample_of_wrong_answers_odd_files_and_full_disks():
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")

    ended = run(CASES, seed)

    for case in sorted(ended, key=lambda case: case.seconds)[-SLOWEST:]:
        print(f"{case.seconds:6.1f} s {case}")
    assert len(ended) == 2 * CASES + len(TRITON_COMMANDS)
    assert [case for case in ended if case.problem] == []
