"""A release of a model that lies on a volume: what pods of steps mount, and what goes live."""

import time

import pytest

from slipway.airflow.pods import USER_ID
from slipway.tasks.contracts.stored.plan import Plan
from tests.local.chain.whole_chain import SPEC
from tests.local.steps.step_pods import ByHand
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)
CLAIM, FOLDER = "demo-models", "slipway/demo-llama"
FILL = """
import json, os, pathlib, urllib.request
hub, repo, folder = os.environ["HUB"], os.environ["REPO"], pathlib.Path(os.environ["VOLUME"], os.environ["REPO"])
folder.mkdir(parents=True)
with urllib.request.urlopen(f"{hub}/api/models/{repo}/revision/v1") as answer:
    names = [each["rfilename"] for each in json.load(answer)["siblings"]]
for name in names:
    (folder / name).write_bytes(urllib.request.urlopen(f"{hub}/{repo}/resolve/v1/{name}").read())
"""


@pytest.fixture
def claim(chain):
    """A claim with the demo model in a folder, copied there by a pod, as a person would."""
    core, namespace = chain.core, chain.site.kubernetes.pipeline_namespace
    requested = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": CLAIM}, "spec": requested})
    environment = {"HUB": chain.site.hub.endpoint, "REPO": FOLDER, "VOLUME": "/mnt/models"}
    container = {
        "name": "fill",
        "image": chain.site.images.tasks,
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
    metadata = {
        "name": "fill-volume",
        "labels": {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/step": "plan"},
    }
    core.create_namespaced_pod(namespace, {"metadata": metadata, "spec": spec})
    until(lambda: core.read_namespaced_pod("fill-volume", namespace).status.phase in {"Succeeded", "Failed"})
    phase = core.read_namespaced_pod("fill-volume", namespace).status.phase
    assert phase == "Succeeded", core.read_namespaced_pod_log("fill-volume", namespace)
    core.delete_namespaced_pod("fill-volume", namespace, grace_period_seconds=0)
    yield CLAIM
    core.delete_namespaced_persistent_volume_claim(CLAIM, namespace)


@pytest.fixture
def released(chain):
    gate = SPEC["gate"] | {"benchmark": {"concurrency": [1], "requests": 8, "warmup": 0}}
    gate["expect"] = [{"metric": "smoke_accuracy", "at_least": 1.0}, {"metric": "error_rate", "at_most": 0.0}]
    source = {"uri": f"pvc://{CLAIM}/{FOLDER}"}
    made = ByHand(chain, "on-volume", run=f"volume-{int(time.time())}", gate=gate, source=source)
    yield made
    made.remove()


def test_a_model_on_a_volume_goes_live_and_answers(chain, claim, released):
    released.reach("promote")
    released.make("promote")

    assert chain.live("on-volume") == released.id
    assert chain.ask("on-volume", "on-volume")
    source = Plan.model_validate(released.plan).source
    assert (source.repo, source.revision) == (f"pvc://{CLAIM}/{FOLDER}", "")
    assert {file.digest.partition(":")[0] for file in source.files} == {"stat"}


def test_a_folder_that_the_volume_lacks_ends_plan_with_what_to_do(chain, claim, released):
    released.document["source"] = {"uri": f"pvc://{CLAIM}/slipway/other"}

    ended = released.start("plan").end()

    assert ended.exit_code == 65
    assert f"pvc://{CLAIM}/slipway/other does not exist" in ended.message
