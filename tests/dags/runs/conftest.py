import pytest
from airflow.models.dagbundle import DagBundleModel  # noqa: F401 - its table has to be known when the database is made
from airflow.utils.db import initdb


@pytest.fixture(scope="session")
def database():
    """Airflow's own, in the tier's AIRFLOW_HOME: making it takes seconds."""
    initdb()
