"""The fake keeps the promises that the real store keeps."""

import pytest

from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.store.object_store_contract import ObjectStoreContract


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self):
        return MemoryObjectStore()

    @pytest.fixture
    def root(self):
        return "s3://bucket/test"
