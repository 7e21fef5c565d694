"""A model that lies on a volume, and its live release: of two replicas, where a test may kill one."""

import contextlib
import time

from slipway.airflow.pods import USER_ID
from tests.local.steps.step_pods import LIGHT_GATE, ByHand
from tests.support.waiting import until

NAME = "on-volume"
CLAIM, FOLDER, POD = "demo-models", "slipway/demo-llama", "fill-volume"
FILL = """
import json, os, pathlib, urllib.request
hub, repo, folder = os.environ["HUB"], os.environ["REPO"], pathlib.Path(os.environ["VOLUME"], os.environ["REPO"])
folder.mkdir(parents=True)
with urllib.request.urlopen(f"{hub}/api/models/{repo}/revision/v1") as answer:
    names = [each["rfilename"] for each in json.load(answer)["siblings"]]
for name in names:
    (folder / name).write_bytes(urllib.request.urlopen(f"{hub}/{repo}/resolve/v1/{name}").read())
"""


@contextlib.contextmanager
def filled_claim(chain):
    """A claim with the demo model in a folder, within the block."""
    core, namespace = chain.core, chain.site.kubernetes.pipeline_namespace
    requested = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": CLAIM}, "spec": requested})
    try:
        _fill(core, namespace, chain.site)
        yield
    finally:
        core.delete_namespaced_persistent_volume_claim(CLAIM, namespace)


def _fill(core, namespace, site):
    """Copy the model to the claim by a pod, as a person would."""
    environment = {"HUB": site.hub.endpoint, "REPO": FOLDER, "VOLUME": "/mnt/models"}
    container = {
        "name": "fill",
        "image": site.images.tasks,
        "command": ["python", "-c", FILL],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [{"name": "models", "mountPath": "/mnt/models"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    user = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "restartPolicy": "Never",
        "securityContext": user,
        "serviceAccountName": "slipway-planner",
        "containers": [container],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }
    labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/step": "plan"}
    core.create_namespaced_pod(namespace, {"metadata": {"name": POD, "labels": labels}, "spec": spec})
    try:
        until(lambda: core.read_namespaced_pod(POD, namespace).status.phase in {"Succeeded", "Failed"})
        phase = core.read_namespaced_pod(POD, namespace).status.phase
        assert phase == "Succeeded", core.read_namespaced_pod_log(POD, namespace)
    finally:
        core.delete_namespaced_pod(POD, namespace, grace_period_seconds=0)


def release_of(chain, folder, run=None):
    """A release of what a folder of the volume holds. It shares no stage with others, so its gate asks for less still."""
    gate = {name: part for name, part in LIGHT_GATE.items() if name != "quality"}
    serving = {"replicas": {"min": 2, "max": 2}} if chain.stack else {}
    run = run or f"volume-{int(time.time())}"
    return ByHand(chain, NAME, run=run, gate=gate, source={"uri": f"pvc://{CLAIM}/{folder}"}, serving=serving)
