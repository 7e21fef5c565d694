"""A long call is seen to go on."""

import logging
import time

from tasks.engines.heartbeat import phase


def test_a_long_phase_is_logged_while_it_lasts_and_not_after(caplog):
    caplog.set_level(logging.INFO)

    with phase("compressing", interval_s=0.02):
        deadline = time.monotonic() + 20
        while len(caplog.messages) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = len(caplog.messages)
    time.sleep(0.05)

    assert caplog.messages[0] == "compressing"
    assert lines >= 3
    assert all(message.endswith("s so far") for message in caplog.messages[1:])
    assert len(caplog.messages) == lines
