"""`python -m bench.airflow.status`: how long `slipway status` takes for 10 and for 100 models.

Channels lie in moto's S3. A stand-in for Airflow answers each request after `--airflow-ms`, as an API server on a
laptop does; the embedded cluster has no leases. The peer is one process of boto3 and httpx that reads the same channels
and runs one model at a time. Both are also said in seconds of CPU, which other work of the machine changes least.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import boto3
import yaml

from bench.transfer.transfer_servers import CREDENTIALS, moto
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from tests.fakes.servers.airflow_server import PASSWORD, USER, AirflowServer, Frame, Script, ScriptedRun
from tests.support.cluster_process import ClusterProcess

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PYTHON = REPOSITORY / ".slipway" / "envs" / "local" / "bin" / "python"
GOALS_S = {10: 2.0, 100: 4.0}
BUCKET = "slipway"
IN_TURN = """
import os, boto3, httpx
airflow = httpx.Client(base_url=os.environ["SLIPWAY_AIRFLOW"])
login = {"username": os.environ["SLIPWAY_AIRFLOW_USER"], "password": os.environ["SLIPWAY_AIRFLOW_PASSWORD"]}
token = airflow.post("/auth/token", json=login).json()["access_token"]
airflow.headers["Authorization"] = f"Bearer {token}"
store = boto3.client("s3", endpoint_url=os.environ["ENDPOINT"])
for item in store.list_objects_v2(Bucket="slipway", Prefix=os.environ["FOLDER"])["Contents"]:
    store.get_object(Bucket="slipway", Key=item["Key"])["Body"].read()
    name = item["Key"].rpartition("/")[2].removesuffix(".json")
    airflow.get(f"/api/v2/dags/release__{name}/dagRuns", params={"limit": 1, "order_by": "-run_after"})
"""


def main() -> int:
    """Print a line for each number of models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=5)
    parser.add_argument("--airflow-ms", type=float, default=40.0)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"Airflow answers after {arguments.airflow_ms:.0f} ms; median of {arguments.readings}", flush=True)
    os.environ.update(CREDENTIALS)
    with moto() as endpoint, tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as kubeconfig:
        site = yaml.safe_load((REPOSITORY / "sites" / "kind.yaml").read_text())
        site["object_store"] |= {"bucket": BUCKET, "endpoint": endpoint}
        for models, goal_s in GOALS_S.items():
            site["object_store"]["prefix"] = f"of-{models}"
            file = Path(folder, f"{models}.yaml")
            file.write_text(yaml.safe_dump(site))
            layout = Layout(f"s3://{BUCKET}/of-{models}")
            with AirflowServer(answer_s=arguments.airflow_ms / 1000) as airflow:
                write(models, layout, endpoint, airflow)
                environment = {
                    "PATH": os.defpath,
                    **CREDENTIALS,
                    "SLIPWAY_AIRFLOW": airflow.address,
                    "SLIPWAY_AIRFLOW_USER": USER,
                    "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD,
                    "SLIPWAY_SITE": str(file),
                    "KUBECONFIG": str(kubeconfig),
                    "ENDPOINT": endpoint,
                    "FOLDER": layout.channel("").removeprefix(f"s3://{BUCKET}/").removesuffix(".json"),
                }
                ours = [str(REPOSITORY / "bin" / "slipway"), "status"]
                peers = [str(PYTHON), "-c", IN_TURN]
                readings = [spent(ours, environment) + spent(peers, environment) for _ in range(arguments.readings)]
            ours_s, ours_cpu_s, peers_s, peers_cpu_s = (median(column) for column in zip(*readings, strict=True))
            verdict = "met" if ours_s <= goal_s else "missed"
            print(
                f"slipway status, {models:3} models {ours_s:.2f} s (goal {goal_s:.0f} s: {verdict}), "
                f"{ours_cpu_s:.2f} of CPU; "
                f"boto3 and httpx in turn {peers_s:.2f} s, {peers_cpu_s:.2f} of CPU: ratio {ours_s / peers_s:.2f}",
                flush=True,
            )
    return 0


@contextmanager
def cluster(folder: Path) -> Iterator[Path]:
    """The embedded cluster, without an object of ours, while the block runs: its kubeconfig."""
    start: Any = ClusterProcess  # tests have no types
    running = start(folder, {}, "bench")
    try:
        yield running.kubeconfig
    finally:
        running.stop()


def write(models: int, layout: Layout, endpoint: str, airflow: AirflowServer) -> None:
    """A channel with a live release, and a run that has ended, of each model."""
    client = boto3.client("s3", endpoint_url=endpoint)
    for name in (f"model-{number}" for number in range(models)):
        uri = layout.release(name, f"{name}-1")
        channel = Channel(name=name).promoted(f"{name}-1", uri, at=datetime.now(UTC), run="one", keep=2)
        key = layout.channel(name).removeprefix(f"s3://{BUCKET}/")
        client.put_object(Bucket=BUCKET, Key=key, Body=canonical_json(channel.model_dump(mode="json")))
        dag_id, script = f"release__{name}", Script([Frame("success")])
        airflow.dags[dag_id] = script
        airflow.runs[dag_id, "one"] = ScriptedRun("one", {}, script)


def spent(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; how many seconds it took, and how many of a CPU.

    Raises:
        SystemExit: it failed.
    """
    began, cpu_before_s = time.perf_counter(), cpu_of_children_s()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    taken_s = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr[-1000:]}")
    return taken_s, cpu_of_children_s() - cpu_before_s


def cpu_of_children_s() -> float:
    """CPU seconds of the child processes that have ended; moto's is still running."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
