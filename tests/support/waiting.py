"""Wait for what is expected to come true."""

import time
import urllib.request

PATIENCE_S = 180.0
"""Far more than anything here takes beside other work: a machine that stalls makes a test slow, not wrong."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.5
LATE = 0.1
"""Share of the time waited so far that passes until the next look: of a CPU, one at a pod takes client and server 10 ms, one
at a run of Airflow's 50."""


def until(check, timeout_s=PATIENCE_S, every_s=None, said=str):
    """The first true answer of `check`; `said` gives what a failure should tell.

    Looks every `every_s`; without it, less and less often the longer it takes.
    """
    began = time.monotonic()
    while not (answer := check()):
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, f"waited {timeout_s} s in vain. {said()}"
        time.sleep(every_s or min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, LATE * waited_s)))
    return answer


def answers(url):
    """Whether a server answers there."""
    try:
        urllib.request.urlopen(url, timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True
