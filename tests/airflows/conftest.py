"""The wheel is built as for tests/local/packaging; a transcript of what people would see is printed at the end."""

from tests.airflows import transcript
from tests.airflows.environments import airflow_of, services  # noqa: F401 - fixtures
from tests.local.packaging.conftest import wheel  # noqa: F401 - a fixture


def pytest_terminal_summary(terminalreporter):
    for file in transcript.written:
        terminalreporter.write(f"\n{file.read_text()}")
