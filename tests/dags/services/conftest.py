"""The one API server of these tests: a process of its own, so that nothing of Airflow's server stays in the tests'."""

import pytest

from tests.dags.services.api_server import api_server


@pytest.fixture(scope="session")
def airflow(database, s3_endpoint, tmp_path_factory):
    """Airflow's API server over the tier's database and bucket."""
    with api_server(tmp_path_factory.mktemp("api-server"), s3_endpoint) as server:
        yield server
