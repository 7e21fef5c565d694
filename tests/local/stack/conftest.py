import time
from contextlib import contextmanager

import pytest

from local.stack import Stack
from tests.local.chain import whole_chain


@pytest.fixture(scope="session")
def until():
    """Waits for a check to come true."""

    def wait(check, timeout_s=90.0):
        deadline = time.monotonic() + timeout_s
        while not check():
            assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
            time.sleep(0.05)

    return wait


@contextmanager
def running(folder):
    """A stack without Airflow in `folder`; none of its processes is left afterwards."""
    stack = Stack(folder)
    stack.up(say=lambda _: None, airflow=False)
    try:
        yield stack
    finally:
        stack.down()
    whole_chain.until(lambda: not whole_chain.processes_naming(str(stack.folder)), timeout_s=30)


@pytest.fixture
def stack(tmp_path):
    with running(tmp_path / "stack") as stack:
        yield stack


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("shared") / "stack") as stack:
        yield stack
