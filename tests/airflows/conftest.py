"""The wheel is built as for tests/local/packaging."""

from tests.local.packaging.conftest import wheel  # noqa: F401 - a fixture
