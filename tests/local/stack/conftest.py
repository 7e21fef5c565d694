from contextlib import contextmanager

import pytest

from local.stack import Stack
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


@pytest.fixture
def stack(tmp_path):
    with running(tmp_path / "stack") as stack:
        yield stack


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("shared") / "stack") as stack:
        yield stack
