"""Wait for what is expected to come true."""

import time

PATIENCE_S = 180.0
"""Far more than anything here takes beside other work: a machine that stalls makes a test slow, not wrong."""


def until(check, timeout_s=PATIENCE_S, every_s=0.05, said=str):
    """The first true answer of `check`; `said` gives what a failure should tell."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain. {said()}"
        time.sleep(every_s)
    return answer
