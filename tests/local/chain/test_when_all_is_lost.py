"""The drills of docs/disaster.md, with the commands of that page: the bucket, Airflow's database, the cluster are lost.

They come last, because each of them loses what other tests made.
"""

import contextlib
import re
import shutil
import subprocess

import pytest

from slipway.cli.airflow.api import NoSuchDagError
from tests.local.chain.killed_airflow import kill_all
from tests.local.chain.own_stack import FOLDER
from tests.local.chain.whole_chain import MODEL
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

PAGE = (REPOSITORY / "docs" / "disaster.md").read_text()
AIRFLOW = ["scheduler", "triggerer", "dag-processor", "api-server", "execution-api"]


@pytest.fixture
def stack(chain, promoted):
    """The stack of this machine, which a drill may destroy in part."""
    if chain.stack is None:
        pytest.skip("needs a stack that a test may destroy")
    return chain.stack


def slipway(chain, *arguments):
    """The output of a command that ends well."""
    done = chain.slipway(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(lost):
    """The page's commands for what was lost, in its order."""
    section = re.search(rf"^### {lost}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    return [line.split() for line in re.findall(r"^ +slipway (.+)$", section, re.MULTILINE)]


def give(chain, lines, backup=""):
    """Give the commands; their outputs by command.

    A release is one of the revision that is not live, so that there is something to do.
    """
    said = {}
    for line in lines:
        words = [{"<name>": MODEL, "<back-up>": str(backup)}.get(word, word) for word in line]
        more = ["--revision", chain.other_revision()] if words[0] == "release" else []
        said[words[0]] = slipway(chain, *words, *more)
    return said


def live_pods(chain):
    return set(chain.cluster.ready_pods({"slipway.dev/release": chain.live()}))


def history_of_runs(chain):
    """Whether Airflow has runs of the model; None until it has read the DAG."""
    with contextlib.suppress(NoSuchDagError):
        return "runs" if chain.airflow.runs(f"release__{MODEL}", 1) else "empty"
    return None


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

    *recovery, release = commands("The bucket is lost")
    said = give(chain, recovery, tmp_path / "backup")

    assert list(said) == ["setup", "import", "restore"]
    assert "it served already" in said["restore"]
    assert chain.channel() == before
    for name in pods:
        chain.core.delete_namespaced_pod(name, chain.site.kubernetes.serving_namespace)
    until(lambda: live_pods(chain) - pods, timeout_s=200)
    assert chain.ask()
    # the release is made below, by an Airflow that has lost its database as well
    assert release == commands("Airflow's database is lost")[-1]


def test_a_new_database_of_airflow_loses_no_release_and_the_next_one_takes_over(chain, stack):
    channel, service = chain.channel(), chain.live_service()
    lost = chain.trigger(f"release__{MODEL}", "lost-with-the-database", revision=chain.other_revision())
    until(chain.lease_holder, timeout_s=400)
    stack.supervisor.stop(AIRFLOW)
    kill_all(stack.airflow)
    for file in stack.airflow.folder.glob("airflow.db*"):
        file.unlink()

    chain.up()

    assert chain.lease_holder().dag_run.endswith(lost.run_id)
    assert (chain.channel(), chain.live_service()) == (channel, service)
    assert chain.ask()
    assert until(lambda: history_of_runs(chain)) == "empty"
    assert list(give(chain, commands("Airflow's database is lost"))) == ["release"]
    assert chain.live() != channel["live"]["release_id"]
    assert chain.channel()["previous"][0]["release_id"] == channel["live"]["release_id"]
    assert chain.channel()["history"][1:] == channel["history"]
    assert chain.lease_holder() is None
    slipway(chain, "rollback", MODEL, "--reason", "wrong answers")
    assert chain.live() == channel["live"]["release_id"]
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
