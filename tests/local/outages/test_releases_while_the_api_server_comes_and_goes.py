"""Releases, roll backs and drills while the API server or the node is away at random moments for random times, and
while a LimitRange refuses what they start.

Nothing is lost, nothing is left that nobody finds, and no step takes an outage for anything else. SLIPWAY_OUTAGE_RUNS
says how many random sequences of runs are tried instead of the few, always the same, that every test run has time for.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from slipway.tasks.contracts.stored.release import LIVE
from tests.local.outages.hollow_cluster import HollowCluster, NodeOutage, Outage
from tests.local.outages.world import Ends, World

SEQUENCES = int(os.environ.get("SLIPWAY_OUTAGE_RUNS", "0"))
FEW_SEQUENCES = 6
RUNS_OF_A_SEQUENCE = 8
REQUESTS_OF_A_TRY = 60
"""About as many as most steps make; a drill makes twice as many."""
FEW_REQUESTS = 8
"""The client asks up to four times before an outage fails a read: of so few requests, those that follow are answered."""
REFUSED_REQUESTS = 20
OUTAGE = st.builds(
    Outage,
    at=st.integers(0, REQUESTS_OF_A_TRY),
    requests=st.integers(1, FEW_REQUESTS) | st.integers(1, 4 * REQUESTS_OF_A_TRY),
    handled=st.booleans(),
    starting=st.integers(0, REFUSED_REQUESTS),
)
NODE_OUTAGE = st.builds(NodeOutage, at=st.integers(0, REQUESTS_OF_A_TRY), requests=st.integers(1, REQUESTS_OF_A_TRY))
OUTAGES = st.lists(st.none() | OUTAGE | NODE_OUTAGE, max_size=6)
"""What happens during the tries of a run, in order; later tries meet none."""
ENDS = [Ends.PROMOTED, Ends.PROMOTED, Ends.FAILS_GATE, Ends.NOT_ADMITTED]


@pytest.fixture(scope="module")
def hollow(tmp_path_factory):
    made = HollowCluster(tmp_path_factory.mktemp("hollow"))
    yield made
    made.close()


def machine_in(hollow, folder):
    class Releases(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.world = World(hollow, folder)

        def teardown(self):
            self.world.close()

        @rule(keep=st.integers(1, 2), ends=st.sampled_from(ENDS), outages=OUTAGES)
        def release(self, keep, ends, outages):
            before = self.world.live

            promoted = self.world.release(keep=keep, ends=ends, outages=iter(outages))

            assert ends is Ends.PROMOTED or not promoted
            # a promotion may be cut off between its swap of the channel and its end
            assert self.world.live != before if promoted else ends is Ends.PROMOTED or self.world.live == before

        @precondition(lambda self: self.world.channel.previous)
        @rule(outages=OUTAGES)
        def roll_back(self, outages):
            before, to = self.world.channel.live.release_id, self.world.channel.previous[0].release_id

            done = self.world.revert(outages=iter(outages))

            assert self.world.live in ({to} if done else {before, to})

        @rule(outages=OUTAGES)
        def drill(self, outages):
            before = self.world.channel

            self.world.drill(outages=iter(outages))

            assert self.world.channel == before

        @precondition(lambda self: self.world.is_held)
        @rule(outages=OUTAGES)
        def sweep(self, outages):
            self.world.revert(outages=iter(outages), to=LIVE)

        @invariant()
        def nothing_is_lost(self):
            self.world.assert_answers()

        @invariant()
        def nothing_is_left_that_nobody_finds(self):
            if not self.world.is_held:
                self.world.assert_in_order()

    return Releases


def test_nothing_is_lost_and_nothing_is_left_that_nobody_finds(hollow, tmp_path):
    run_state_machine_as_test(
        machine_in(hollow, tmp_path),
        settings=settings(
            max_examples=SEQUENCES or FEW_SEQUENCES,
            derandomize=not SEQUENCES,
            phases=[Phase.generate],  # a shorter sequence takes many minutes to find
            stateful_step_count=RUNS_OF_A_SEQUENCE,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
