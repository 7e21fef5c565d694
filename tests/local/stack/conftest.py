import time

import pytest


@pytest.fixture
def until():
    """Waits for a check to come true."""

    def wait(check, timeout_s=20.0):
        deadline = time.monotonic() + timeout_s
        while not check():
            assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
            time.sleep(0.05)

    return wait
