import pytest

from tests.fakes.old_stores import OldStore


@pytest.fixture
def old(tmp_path):
    return OldStore(tmp_path)
