from contextlib import contextmanager

import pytest

from local.stack import SERVERS, Stack
from tests.local.chain import whole_chain
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import until


@contextmanager
def running(folder):
    """A stack without Airflow in `folder`; none of its processes is left afterwards."""
    stack = Stack(folder)
    tell(LogFiles(folder))
    stack.up(say=lambda _: None, airflow=False)
    try:
        yield stack
    finally:
        stack.down()
    until(lambda: not whole_chain.processes_naming(str(stack.folder)))


@pytest.fixture(scope="package")
def shared_stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("shared") / "stack") as stack:
        yield stack


@pytest.fixture
def stack(shared_stack):
    """The stack of these tests with all its servers: each test may kill, move or stop them."""
    states = shared_stack.status()
    if not all(states[service].runs for service in SERVERS):
        shared_stack.up(say=lambda _: None, airflow=False)
    return shared_stack
