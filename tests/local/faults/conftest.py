"""One model in the embedded cluster with stand-ins for Triton, its documents in S3 behind a server that spoils answers."""

import contextlib
import itertools
import os

import pytest

from tasks.adapters.clock import SystemClock
from tasks.adapters.s3 import S3ObjectStore
from tests.fakes.cluster import ConnectedWorkspace
from tests.fakes.faulty_s3 import FaultyS3
from tests.local.core.conftest import PLANTED, object_store  # noqa: F401 - a fixture
from tests.local.faults.model import AtMoments, Model
from tests.local.stand_in_cluster import REPOSITORY, Server, asking, server, site_in  # noqa: F401 - fixtures

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def spoiled(object_store):  # noqa: F811
    """A server before the tests' S3 server that spoils answers on demand."""
    if object_store.endpoint is None:
        pytest.skip("Amazon S3 is reached over HTTPS, which nothing can spoil on the way")
    with FaultyS3(object_store.endpoint) as front:
        yield front


@pytest.fixture(scope="session")
def model_in(object_store, spoiled, tmp_path_factory):  # noqa: F811
    """Makes a model without a release, in a namespace of a cluster, for as long as a block."""
    credentials = {name: os.environ.get(name, value) for name, value in PLANTED.items()}

    @contextlib.contextmanager
    def made(server):  # noqa: F811
        name = f"faults-{os.getpid()}-{next(NUMBERS)}"
        kept = object_store.model_copy(
            update={"endpoint": spoiled.endpoint, "prefix": f"{object_store.prefix}/{name}".lstrip("/")}
        )
        with site_in(server, name) as found:
            site = found.model_copy(update={"object_store": kept})
            store, scratch = S3ObjectStore(kept, credentials), tmp_path_factory.mktemp(name)
            cluster = AtMoments.connect(site, kubeconfig=server.kubeconfig)
            yield Model(
                ConnectedWorkspace(site, store, SystemClock(), scratch, REPOSITORY, lambda: None, connection=cluster)
            )
            store.delete([item.uri for item in store.list(f"{kept.root}/")])

    return made


@pytest.fixture(scope="session")
def models(server, model_in):  # noqa: F811
    """Gives the model that the last test left whole; otherwise another one, which has a live release."""
    with contextlib.ExitStack() as opened:
        known = []

        def give():
            if not known or not known[-1].is_whole:
                known.append(opened.enter_context(model_in(server)))
                known[-1].released()
            known[-1].begin()
            return known[-1]

        yield give
        for each in known:
            each.assert_gone()


@pytest.fixture
def model(models):
    """A model with a live release, which answers."""
    return models()


@pytest.fixture
def own_server(tmp_path):
    """A cluster that the test may kill."""
    made = Server(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def own_model(own_server, model_in):
    """A model with a live release in a cluster that the test may kill."""
    with model_in(own_server) as made:
        made.released()
        made.begin()
        yield made
