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


def test_a_killed_airflow_service_is_back_at_its_port_and_its_workers_are_ended(stack):
    until(lambda: len(of_service("scheduler")) > 1)  # workers, which a kill of the scheduler alone would leave
    ports = stack.settings.ports
    pids = {service: stack.status()[service].pid for service in COMMANDS}
    before = {service: of_service(service) for service in COMMANDS}

    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(stack.status()[service].pid not in (0, pid) for service, pid in pids.items()))
    local("up", FOLDER, "--specs", SPECS)

    assert type(stack)(FOLDER).settings.ports == ports
    until(lambda: stack.airflow.unhealthy_parts() == [])
    assert [service for service, pid in pids.items() if pid not in before[service]] == []
    assert [service for service in COMMANDS if before[service] & of_service(service)] == []
