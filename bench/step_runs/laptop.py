"""The laptop's stack for benchmarks of Airflow: its own specs, and step pods that run program.py instead of the step.

Everything else is what a release uses: dags/releases.py, StepOperator, Airflow's services, its database, the embedded
cluster's API, its rights and its object store. Beside them Airflow reads peer.py: bare KubernetesPodOperators.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bench.step_runs import program
from local.stack import REPOSITORY, Stack
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.contracts.stored.plan import Datasets, Estimate, Plan, Source, StagePlan, release_id
from slipway.tasks.contracts.stored.release import StepResult

SPEC = REPOSITORY / "specs" / "demo.yaml"
IMAGES = ("slipway/tasks-cpu:dev", "slipway/triton-cpu:dev")
"""Images of sites/local.yaml that steps of the spec run in."""
BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"
PEER_PODS = 11
"""A release that finds no stage stored starts this many pods."""
MODEL, RELEASE, PEER = "bench", "release__bench", "peer"
PEER_FILE = """
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, chain
from kubernetes.client import models as k8s

pod = {{"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {{"type": "RuntimeDefault"}}}}
container = {{"allowPrivilegeEscalation": False, "capabilities": {{"drop": ["ALL"]}}}}
with DAG("{peer}", schedule=None, catchup=False, max_active_runs=64):
    chain(*(
        KubernetesPodOperator(
            task_id=f"step-{{number}}",
            namespace="slipway",
            image="{image}",
            cmds=["python", "-m", "slipway.tasks", "{step}"],
            security_context=pod,
            container_security_context=container,
            container_resources=k8s.V1ResourceRequirements(requests={{"cpu": "250m"}}, limits={{"memory": "1Gi"}}),
        )
        for number in range({pods})
    ))
"""


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder that is removed at the end. It is not below /tmp, which pods have of their own."""
    (REPOSITORY / ".slipway").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=REPOSITORY / ".slipway") as folder:
        yield Path(folder)


def write_files(folder: Path) -> None:
    """Write the model's spec, what its runs plan, the program of the steps, and the peer's DAG."""
    for each in ("specs", "peer", "image/slipway/tasks"):
        (folder / each).mkdir(parents=True)
    spec = SPEC.read_text().replace("name: demo-llama", f"name: {MODEL}", 1)
    (folder / "specs" / f"{MODEL}.yaml").write_text(spec)
    (folder / "plan.json").write_text(json.dumps(plan_result()))
    shutil.copyfile(program.__file__, folder / "image" / "slipway" / "tasks" / "__main__.py")
    peer = PEER_FILE.format(peer=PEER, image=IMAGES[0], step=program.IDLE, pods=PEER_PODS)
    (folder / "peer" / "peer.py").write_text(peer)
    variables = {"PYTHONPATH": str(folder / "image"), program.PLAN: str(folder / "plan.json")}
    row = {"path_prefix": ["${ENVS}/tasks/bin"], "env": variables}
    (folder / "images.yaml").write_text(yaml.safe_dump({"images": dict.fromkeys(IMAGES, row)}))


def laptop(folder: Path, *, notice_s: float, airflow: Mapping[str, str] | None = None) -> Stack:
    """A stack of the files in `folder`, which is not started.

    Args:
        folder: where write_files wrote.
        notice_s: seconds between the cluster's looks at its containers; a kubelet looks once a second.
        airflow: further variables of Airflow's processes.
    """
    bundles = [
        {"name": "dags-folder", "classpath": BUNDLE, "kwargs": {}},
        {"name": "peer", "classpath": BUNDLE, "kwargs": {"path": str(folder / "peer")}},
    ]
    return Stack(
        folder / "stack",
        specs=folder / "specs",
        images=folder / "images.yaml",
        airflow_environment={
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
            **(airflow or {}),
        },
        cluster_options=("--notice-s", str(notice_s)),
    )


def plan_result() -> dict[str, object]:
    """The result of plan with every stage missing; the program fills in the run and the time."""
    stages = {
        stage: StagePlan(key=f"{index + 1:x}" * 64, stored=False, fields={}) for index, stage in enumerate(STAGES)
    }
    release = release_id(MODEL, stages["publish"].key)
    plan = Plan(
        release_id=release,
        name=MODEL,
        run="unknown",
        action="release",
        source=Source(repo="slipway/demo-llama", revision="v1", commit="a" * 40, files=()),
        datasets=Datasets(),
        stages=stages,
        live=None,
        estimate=Estimate(download_bytes=1, scratch_bytes=1, memory_bytes=1),
    )
    result = StepResult(
        step="plan",
        release=Layout("s3://slipway").release(MODEL, release),
        run="unknown",
        outcome="done",
        summary=f"plan of {release}",
        data={"plan": plan.model_dump(mode="json")},
        started_at=datetime.now(UTC),
        seconds=0.0,
    )
    document: dict[str, object] = result.model_dump(mode="json")
    return document
