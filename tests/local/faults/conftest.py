"""One model in the embedded cluster with stand-ins for Triton, its documents in S3 behind a server that spoils answers."""

import contextlib
import itertools
import os

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from tests.fakes.kube.cluster import ConnectedWorkspace
from tests.fakes.store.faulty_s3 import FaultyS3
from tests.fakes.workspace import site as site_of
from tests.local.core.servers import PLANTED, object_store  # noqa: F401 - a fixture
from tests.local.faults.model import Model, PaperCluster, PaperModel, RealCluster
from tests.local.stand_in_cluster import Server, asking, server, site_in  # noqa: F401 - fixtures
from tests.support.paths import REPOSITORY

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def spoiled(object_store):  # noqa: F811
    """A server before the tests' S3 server that spoils answers on demand."""
    if not (object_store.endpoint or "").startswith("http://"):
        pytest.skip("an object store that is reached over HTTPS cannot be spoiled on the way")
    with FaultyS3(object_store.endpoint) as front:
        yield front


@pytest.fixture(scope="session")
def stored(object_store, spoiled, tmp_path_factory):  # noqa: F811
    """Gives workspaces over the cluster of a site, each with a prefix of its own in S3, for as long as a block."""
    credentials = {name: os.environ.get(name, value) for name, value in PLANTED.items()}

    @contextlib.contextmanager
    def given(bare, cluster):
        name = f"faults-{os.getpid()}-{next(NUMBERS)}"
        kept = object_store.model_copy(
            update={"endpoint": spoiled.endpoint, "prefix": f"{object_store.prefix}/{name}".lstrip("/")}
        )
        site, store = bare.model_copy(update={"object_store": kept}), S3ObjectStore(kept, credentials)
        scratch = tmp_path_factory.mktemp(name)
        yield ConnectedWorkspace(
            site, store, SystemClock(), scratch, REPOSITORY, lambda: None, connection=cluster(site)
        )
        store.delete([item.uri for item in store.list(f"{kept.root}/")])

    return given


@pytest.fixture(scope="session")
def model_in(stored):
    """Makes a model with a live release, in a namespace of a cluster, for as long as a block."""

    @contextlib.contextmanager
    def made(server):  # noqa: F811
        def cluster(site):
            return RealCluster.connect(site, kubeconfig=server.kubeconfig)

        with site_in(server, f"faults-{next(NUMBERS)}") as site, stored(site, cluster) as workspace:
            model = Model(workspace)
            model.released()
            yield model

    return made


@pytest.fixture(scope="session")
def models(server, model_in):  # noqa: F811
    """Gives the model that the last test left whole; otherwise another one, which has a live release."""
    with contextlib.ExitStack() as opened:
        known = []

        def give():
            if not known or not known[-1].is_whole:
                known.append(opened.enter_context(model_in(server)))
            known[-1].begin()
            return known[-1]

        yield give


@pytest.fixture
def model(models):
    """A model with a live release, which answers."""
    return models()


@pytest.fixture
def paper_model(stored):
    """A model with a live release in a cluster in memory; its documents are in S3 as well."""
    with stored(site_of(), lambda _: PaperCluster(SystemClock())) as workspace:
        made = PaperModel(workspace)
        made.released()
        made.begin()
        yield made


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    """A cluster that the tests of a module may kill."""
    made = Server(tmp_path_factory.mktemp("own"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def _of_own_server(own_server, model_in):
    with model_in(own_server) as made:
        yield made


@pytest.fixture
def own_model(_of_own_server):
    """A model with a live release in a cluster that the test may kill."""
    assert _of_own_server.is_whole, "an earlier test left it broken"
    _of_own_server.begin()
    return _of_own_server
