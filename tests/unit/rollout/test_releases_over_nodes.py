"""A release whose ranks span nodes is a LeaderWorkerSet, and moves as a Deployment does."""

import pytest

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.documents.rollouts import channel, judged, published, version
from tests.fakes.kube.cluster import in_memory, standing
from tests.fakes.releases import SPEC
from tests.support.refused import refused

SITE = gpu_site().model_dump(mode="json", exclude={"apiVersion", "kind", "name"})


def asked(ranks, **changes):
    """A trt-engine on nodes with four GPUs."""
    engine = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-A10G", "tensor_parallel": 4}
    return {"quantization": {"format": "none"}, "engine": {**engine, "pipeline_parallel": ranks // 4}, **changes}


@pytest.fixture
def workspace(tmp_path):
    return in_memory(tmp_path, **SITE)


def released(workspace, number, ranks, verdict="passed", **changes):
    made = version(number, **asked(ranks, **changes))
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made, verdict)
    (promote if verdict == "passed" else roll_back).run(made, workspace)
    return made


def workloads(cluster):
    return {name: kind for kind, name in cluster.objects if kind in {"Deployment", "LeaderWorkerSet"}}


def test_a_release_over_two_nodes_goes_live(workspace, cluster):
    made = released(workspace, 1, ranks=8)

    assert workloads(cluster) == {made.id: "LeaderWorkerSet"}
    assert standing(cluster)["services"] == {"demo": made.id}
    assert channel(workspace).live.release_id == made.id


def test_only_leaders_answer(workspace, cluster):
    made = released(workspace, 1, ranks=8)

    template = cluster.get("LeaderWorkerSet", made.id)["spec"]["leaderWorkerTemplate"]
    selector = cluster.get("Service", "demo")["spec"]["selector"]
    assert selector.items() <= template["leaderTemplate"]["metadata"]["labels"].items()
    assert not selector.items() <= template["workerTemplate"]["metadata"]["labels"].items()


def test_a_refused_one_goes_with_all_its_pods(workspace, cluster):
    live = released(workspace, 1, ranks=8)

    released(workspace, 2, ranks=8, verdict="failed")

    assert workloads(cluster) == {live.id: "LeaderWorkerSet"}


def test_a_model_may_shrink_to_one_node_and_its_old_set_goes_when_it_is_no_longer_kept(workspace, cluster):
    keep = {"rollout": {"keep": 1}}
    released(workspace, 1, ranks=8, **keep)

    small = released(workspace, 2, ranks=4, **keep)

    assert workloads(cluster) == {small.id: "Deployment"}


def test_one_that_is_not_ready_is_waited_for_as_what_it_is(workspace, cluster):
    made = version(1, **asked(8))
    cluster.failing[made.id] = InputError("pod demo-0-1, container node: CreateContainerConfigError")
    cluster.unavailable.add(made.id)

    with refused(what="container node"):
        roll_out.run(made, workspace)


def test_one_on_the_gpus_of_the_live_release_waits_for_workers_and_gives_the_nodes_back(workspace, cluster):
    live = released(workspace, 1, ranks=8)
    labels = {**manifests.OWN_LABELS, manifests.NAME_LABEL: "demo", manifests.WORKER_LABEL: live.id}
    cluster.objects["Pod", "w"] = {"metadata": {"name": "w", "labels": labels}, "status": {"phase": "Running"}}
    made = version(2, **asked(8, rollout={"surge": "none"}))
    published(workspace, made)

    with refused(UnavailableError, found=f"{live.id} (1 of its pods)"):
        roll_out.run(made, workspace)
    del cluster.objects["Pod", "w"]
    roll_out.run(made, workspace)
    shared = {name: cluster.get("LeaderWorkerSet", name)["spec"]["replicas"] for name in workloads(cluster)}
    judged(workspace, made, "failed")
    roll_back.run(made, workspace)

    assert shared == {live.id: 0, made.id: 1}
    assert workloads(cluster) == {live.id: "LeaderWorkerSet"}
    assert cluster.get("LeaderWorkerSet", live.id)["spec"]["replicas"] == 1
