import pytest

from tests.fakes.store.old_stores import OldStore


@pytest.fixture
def old(tmp_path):
    return OldStore(tmp_path)
