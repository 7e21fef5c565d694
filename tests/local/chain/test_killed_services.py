"""Services of a running stack that are killed: each is back where it was, and nothing of the old one is left."""

import os
import signal

import pytest

from local.airflow.services import COMMANDS
from local.processes import having
from tests.local.chain.own_stack import FOLDER, SPECS, local
from tests.support.waiting import until


@pytest.fixture
def stack(chain):
    if chain.stack is None:
        pytest.skip("the stack was not started here")
    return chain.stack


def of_service(name):
    return having(SLIPWAY_STACK=str(FOLDER), SLIPWAY_SERVICE=name)


@pytest.mark.parametrize("service", COMMANDS)
def test_a_killed_airflow_service_is_back_at_its_port_and_its_workers_are_ended(stack, service):
    ports, pid, before = stack.settings.ports, stack.status()[service].pid, of_service(service)

    os.kill(pid, signal.SIGKILL)
    until(lambda: stack.status()[service].pid not in (0, pid))
    local("up", FOLDER, "--specs", SPECS)

    assert type(stack)(FOLDER).settings.ports == ports
    until(lambda: stack.airflow.unhealthy_parts() == [])
    assert pid in before
    assert not before & of_service(service)


def test_the_scheduler_forks_workers_that_a_kill_of_it_would_leave(stack):
    """What the test above ends: without workers it would show nothing."""
    until(lambda: len(of_service("scheduler")) > 1)
