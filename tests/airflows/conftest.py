"""The wheel is built as for tests/local/packaging."""

from tests.airflows.environments import airflow_of  # noqa: F401 - a fixture
from tests.local.packaging.conftest import wheel  # noqa: F401 - a fixture
