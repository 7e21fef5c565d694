"""The drills of docs/disaster.md, with the commands of that page: the bucket, the cluster are lost.

They come last, because each of them loses what other tests made.
"""

import shutil
import subprocess

import pytest

from tests.local.chain.disaster import commands, give, slipway
from tests.local.chain.own_stack import FOLDER
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def stack(chain, promoted):
    """The stack of this machine, which a drill may destroy in part."""
    if chain.stack is None:
        pytest.skip("needs a stack that a test may destroy")
    return chain.stack


def live_pods(chain):
    return set(chain.cluster.ready_pods({"slipway.dev/release": chain.live()}))


def lose_bucket(chain):
    client, bucket = chain.stack.object_store.client(), chain.site.object_store.bucket
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=item["Key"])
    client.delete_bucket(Bucket=bucket)


def lose_cluster(chain):
    """Its API, its pods and all that it kept. Airflow is elsewhere."""
    folder = FOLDER / "cluster"
    chain.stack.supervisor.stop(["cluster"])
    python = ENVIRONMENTS / "local" / "bin" / "python"
    subprocess.run([python, "-m", "local.cluster", "stop", "--state", folder], cwd=REPOSITORY, check=True)
    shutil.rmtree(folder)


def test_a_lost_bucket_comes_back_from_a_backup_and_pods_start_from_it(chain, stack, tmp_path):
    before, pods = chain.channel(), live_pods(chain)
    slipway(chain, "export", "--to", tmp_path / "backup")
    lose_bucket(chain)
    assert chain.ask()

    said = give(chain, commands("The bucket is lost"), tmp_path / "backup")

    assert list(said) == ["setup", "import", "restore", "release"]
    assert "it served already" in said["restore"]
    assert "nothing to do" in said["release"]
    assert chain.channel() == before
    for name in pods:
        chain.core.delete_namespaced_pod(name, chain.site.kubernetes.serving_namespace)
    until(lambda: live_pods(chain) - pods, timeout_s=200)
    assert chain.ask()


def test_a_new_cluster_serves_what_the_channel_names(chain, stack):
    before = chain.channel()
    lose_cluster(chain)

    chain.up()
    chain.connect()
    assert chain.deployments() == set()
    said = give(chain, commands("The cluster is lost"))

    assert f"deployed {chain.live()}" in said["restore"]
    assert (chain.channel(), chain.deployments()) == (before, {chain.live()})
    assert chain.ask()
