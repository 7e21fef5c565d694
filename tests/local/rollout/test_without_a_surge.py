"""With `rollout.surge: none` the pods of two releases are never more than those that served before."""

import threading
import time

from slipway.tasks.adapters.kube.workload_state import DEPLOYMENT
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.steps import roll_back, roll_out
from tests.fakes.documents import rollouts


class Pods:
    """Looks again and again at the model's pods that have not ended, and remembers the most by release."""

    def __init__(self, cluster):
        self.cluster, self.most, self._ended = cluster, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def now(self):
        pods = self.cluster.find("Pod", {manifests.NAME_LABEL: "demo"})
        running = [pod for pod in pods if pod["status"].get("phase") not in {"Succeeded", "Failed"}]
        return sorted(pod["metadata"]["labels"][manifests.RELEASE_LABEL] for pod in running)

    def _look(self):
        while not self._ended.is_set():
            self.most = max(self.most, len(self.now()))
            time.sleep(0.2)  # a pod takes longer to start and to end

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def of(replicas):
    serving = {
        "image": "test/triton:good",
        "ready_timeout_s": 90,
        "drain_s": 2,
        "replicas": {"min": replicas, "max": replicas},
    }
    return {"serving": serving, "rollout": {"surge": "none"}}


def rolled_out(workspace, number, replicas):
    made = rollouts.version(number, **of(replicas))
    rollouts.published(workspace, made)
    roll_out.run(made, workspace)
    return made


def refused(workspace, made):
    rollouts.judged(workspace, made, "failed")
    roll_back.run(made, workspace)


def test_two_replicas_shrink_to_one_that_answers_and_come_back(workspace, cluster, asking):
    live = rollouts.released(workspace, 1, **of(2))

    with Pods(cluster) as pods, asking(cluster.live_address("demo")) as clients:
        clients.after(20)
        made = rolled_out(workspace, 2, 2)
        shared = pods.now()
        clients.after(20)
        refused(workspace, made)
        clients.after(20)

    assert shared == sorted([live.id, made.id])
    assert pods.now() == [live.id, live.id]
    assert pods.most == 2
    assert clients.failures == []
    found = cluster.get(DEPLOYMENT, live.id)
    assert (found["spec"]["replicas"], found["status"]["availableReplicas"]) == (2, 2)
    assert "slipway.dev/full-replicas" not in found["metadata"]["annotations"]


def test_the_only_replica_is_stopped_and_answers_again_after_a_refusal(workspace, cluster, asking):
    live = rollouts.released(workspace, 1, **of(1))

    with Pods(cluster) as pods:
        made = rolled_out(workspace, 2, 1)
        shared, reached = pods.now(), cluster.endpoints("demo")
        refused(workspace, made)

    with asking(cluster.live_address("demo")) as clients:
        clients.after(20)
    assert (shared, reached) == ([made.id], set())
    assert (pods.now(), pods.most) == ([live.id], 1)
    assert clients.failures == []


def test_a_promoted_candidate_leaves_no_pod_of_the_release_before(workspace, cluster, asking):
    rollouts.released(workspace, 1, **of(2))

    with Pods(cluster) as pods, asking(cluster.live_address("demo")) as clients:
        made = rollouts.released(workspace, 2, **of(2))
        clients.after(20)

    assert (pods.now(), pods.most) == ([made.id, made.id], 2)
    assert clients.failures == []
    assert {answer.rpartition("-")[0].rpartition("-")[0] for answer in clients.answers[-8:]} == {made.id}
