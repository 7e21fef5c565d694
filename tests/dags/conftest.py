"""A folder of Airflow's own for this tier, a real S3 server and a scripted Kubernetes API."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.dags.places import CREDENTIALS, SITE, store_connection
from tests.support.paths import ENVIRONMENTS, REPOSITORY

# Airflow and the Kubernetes client read these when they are imported, which the imports below already do
HOME = Path(tempfile.mkdtemp(prefix="slipway-dags-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__FERNET_KEY": "",
    # by default a DAG that was stored less than 30 s ago is not stored again, so a test would see the DAG of another one
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
    "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes"}),
    "KUBECONFIG": str(HOME / "kubeconfig"),
    "SLIPWAY_SITE": str(SITE),
}

import boto3  # noqa: E402
import pytest  # noqa: E402
from airflow.models.dagbundle import DagBundleModel  # noqa: E402, F401 - its table is made with the database
from airflow.utils.db import initdb  # noqa: E402

from slipway.airflow.step_documents import s3_client_of  # noqa: E402
from tests.dags.step_runs import StepRuns  # noqa: E402
from tests.fakes.kube.kubernetes_pods import PodServer  # noqa: E402
from tests.support.ports import free_ports  # noqa: E402
from tests.support.waiting import PATIENCE_S, answers, until  # noqa: E402


def pytest_collection_modifyitems(items):
    """Let garbage collection close what an operator left open; a task's process ends instead.

    The provider keeps the connection of a log that it followed, or of a pod that was gone, in its exception's traceback.
    """
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl):ResourceWarning"))


@pytest.fixture(scope="session")
def database():
    """Airflow's own, in the tier's AIRFLOW_HOME: making it takes seconds."""
    initdb()


@pytest.fixture(scope="session")
def s3_endpoint():
    """moto's server, of the environment the laptop's own servers run in."""
    (port,) = free_ports(1)
    python = ENVIRONMENTS / "local" / "bin" / "python"
    process = subprocess.Popen(
        [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{endpoint}/moto-api/"))
        yield endpoint
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def s3(s3_endpoint):
    """The client of the tests themselves: making it takes 0.1 s of CPU."""
    return boto3.resource(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["login"],
        aws_secret_access_key=CREDENTIALS["password"],
    )


@pytest.fixture
def bucket(s3, s3_endpoint, monkeypatch):
    """The site's bucket, empty; Airflow's connection leads to it."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", store_connection(s3_endpoint))
    s3_client_of.cache_clear()
    made = s3.Bucket("slipway")
    made.create()
    yield made
    made.objects.all().delete()
    made.delete()


@pytest.fixture
def cluster():
    """A scripted Kubernetes API that KUBECONFIG names."""
    with PodServer() as server:
        server.write_kubeconfig(HOME / "kubeconfig")
        yield server


@pytest.fixture
def runs(cluster, bucket):
    """Steps of one Airflow run, over the scripted cluster and the bucket."""
    return StepRuns(cluster, bucket)
