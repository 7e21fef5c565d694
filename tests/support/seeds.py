"""Chance that is another one each time, and can be had again."""

import os
import random
import secrets

VARIABLE = "SLIPWAY_TEST_SEED"


def dice():
    """A source of chance. A failed test shows the seed, and with that in the environment repeats what it did."""
    seed = int(os.environ.get(VARIABLE) or secrets.randbelow(2**32))
    print(f"{VARIABLE}={seed} repeats this test's choices")
    return random.Random(seed)  # noqa: S311
