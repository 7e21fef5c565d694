"""A long call is seen to go on."""

import logging
import time

from slipway.tasks.engines.heartbeat import phase
from tests.support.waiting import until


def test_a_long_phase_is_logged_while_it_lasts_and_not_after(caplog):
    caplog.set_level(logging.INFO)

    with phase("compressing", interval_s=0.02):
        until(lambda: len(caplog.messages) >= 3)
    lines = len(caplog.messages)
    time.sleep(0.05)

    assert caplog.messages[0] == "compressing"
    assert all(message.endswith("s so far") for message in caplog.messages[1:])
    assert len(caplog.messages) == lines
