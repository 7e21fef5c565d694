"""The hook that empties a pod's front before its server is told to end."""

import argparse

import pytest

from slipway.tasks import command
from slipway.tasks.serving.pod import drain
from slipway.tasks.serving.rendered import front
from tests.fakes.clock import ManualClock


class Front:
    """Requests end at given seconds of the clock; `heard` says what the hook did, and when."""

    def __init__(self, clock, *ends):
        self.clock, self.ends, self.heard = clock, ends, []

    def close_connections(self):
        self.heard.append(("close", self.clock.monotonic()))

    def stop_listening(self):
        self.heard.append(("stop", self.clock.monotonic()))

    def requests_in_flight(self):
        return len([end for end in self.ends if end > self.clock.monotonic()])

    def quit(self):
        self.heard.append(("quit", self.clock.monotonic()))


@pytest.mark.parametrize(("ends", "quits_at_s"), [((), 10), ((3,), 10), ((12, 17.1), 17.2)])
def test_a_front_ends_when_clients_had_time_to_leave_and_nothing_is_in_flight(ends, quits_at_s):
    clock = ManualClock()
    emptied = Front(clock, *ends)

    drain.drain(emptied, clock, leave_s=10, requests_s=30)

    assert emptied.heard == [("close", 0), ("stop", 10), ("quit", pytest.approx(quits_at_s))]


def test_requests_that_take_too_long_are_cut_and_counted():
    clock = ManualClock()
    emptied = Front(clock, 12, 50, 60)

    told = drain.drain(emptied, clock, leave_s=10, requests_s=30)

    assert emptied.heard[-1] == ("quit", pytest.approx(40, abs=drain.POLL_S))
    assert told.endswith("cut 2 requests that took longer than 30 s")


def test_a_front_that_is_gone_is_unavailable_and_needs_no_site(tmp_path):
    code = command.main(
        [*front.drain_command(30)[3:4], f"--front={tmp_path}/admin.sock", "--leave-s=1", "--requests-s=1"]
    )

    assert code == 75


def test_the_manifests_hook_is_what_the_command_understands():
    parser = argparse.ArgumentParser()
    drain.add_arguments(parser)

    parsed = parser.parse_args(front.drain_command(45)[4:])

    assert (str(parsed.front), parsed.leave_s, parsed.requests_s) == (front.SOCKET, front.LEAVE_S, 45)


def test_an_idle_grpc_connection_is_closed_before_its_front_is():
    assert front.GRPC_IDLE_S + front.GOAWAY_S < front.LEAVE_S
