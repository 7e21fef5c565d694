"""The one API server of these tests: a process of its own, so that nothing of Airflow's server stays in the tests'."""

import shutil
from types import SimpleNamespace

import pytest

from tests.dags.places import SITE
from tests.dags.services.api_server import api_server
from tests.dags.services.people import ADMIN


@pytest.fixture(scope="session")
def started(database, s3_endpoint, tmp_path_factory):
    """Airflow's API server over the tier's database and bucket, and what it answered to an administrator and to nobody
    before it had a site file."""
    folder = tmp_path_factory.mktemp("api-server")
    site = folder / "site.yaml"
    with api_server(folder, s3_endpoint, SLIPWAY_SITE=str(site)) as server:
        without_site = [server.get("/slipway/", user) for user in (ADMIN, None)]
        shutil.copy(SITE, site)
        assert server.get("/slipway/", ADMIN).status == 200, "a server takes the site file that it lacked"
        yield SimpleNamespace(server=server, site=site, without_site=without_site)


@pytest.fixture(scope="session")
def airflow(started):
    """The server."""
    return started.server
