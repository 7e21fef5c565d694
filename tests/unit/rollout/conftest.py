import pytest

from tests.fakes.kube.cluster import in_memory


@pytest.fixture
def workspace(tmp_path):
    """The project's own manifests over a cluster and a store in memory."""
    return in_memory(tmp_path)


@pytest.fixture
def cluster(workspace):
    return workspace.connection
