"""`python -m bench.airflow.step_cost NAME`: what each step costs beside its container, on the site's cluster.

It starts a release of which every artifact is made again, follows its pods through the Kubernetes API, and compares
the run's time with that of the containers, which are the peer. Kubernetes gives a container's times in whole seconds,
both cut off alike, so only the means count. Works with the stack of this checkout (`make up`), and with any cluster and
Airflow for which the command `slipway` is configured.
"""

import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

from kubernetes import client, config, watch

from slipway.cli.airflow.api import Airflow, Run, Task
from slipway.cli.runs.releases import dag_of
from slipway.cli.settings import Settings
from slipway.tasks.contracts.errors import InputError

GOAL_S, OURS_S = 3.0, 1.0
LIMIT_S, LOOK_EVERY_S = 1800, 2.0
TEN_PLACES = "{:>10}" * 5


@dataclass
class PodTimes:
    """When the API server said so, by this machine's clock, and the container's own times: seconds since the epoch."""

    created: float
    running: float = 0.0
    ended: float = 0.0
    container_s: float = 0.0


def main(arguments: list[str]) -> int:
    """Print a line for each step, the means and a verdict."""
    if len(arguments) != 1:
        print("usage: python -m bench.airflow.step_cost NAME", file=sys.stderr)
        return 65
    settings = Settings.resolve(os.environ)
    namespace = settings.site().kubernetes.pipeline_namespace
    config.load_kube_config(config_file=str(settings.kubeconfig))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    pods: dict[str, PodTimes] = {}
    follows = threading.Thread(target=_follow_pods, args=(namespace, arguments[0], pods), daemon=True)
    follows.start()
    with settings.airflow() as airflow:
        run = _release(airflow, arguments[0])
        tasks = {task.task_id: task for task in airflow.tasks(run)}
    if run.state != "success":
        print(f"the run ended as {run.state}", file=sys.stderr)
        return 1
    if not follows.is_alive() or not all(times.ended for times in pods.values()):
        print("the watch of pods ended before the run did: found too little to tell", file=sys.stderr)
        return 1
    _print(run, tasks, pods)
    return 0


def _release(airflow: Airflow, name: str) -> Run:
    """Make and promote every artifact again; the run that has ended."""
    run = airflow.trigger(dag_of(name), {"force": True})
    deadline = time.monotonic() + LIMIT_S
    while not run.ended:
        if time.monotonic() > deadline:
            raise InputError(f"run {run.run_id} has not ended", expected=f"within {LIMIT_S} s")
        time.sleep(LOOK_EVERY_S)
        run = airflow.run(run.dag_id, run.run_id)
    return run


def _follow_pods(namespace: str, name: str, pods: dict[str, PodTimes]) -> None:
    """Keep the times of each step's newest pod of a model."""
    selector = f"app.kubernetes.io/managed-by=slipway,slipway.dev/model={name}"
    core, began = client.CoreV1Api(), time.time()
    while True:
        for event in watch.Watch().stream(core.list_namespaced_pod, namespace, label_selector=selector):
            pod, now = event["object"], time.time()
            if event["type"] == "DELETED" or pod.metadata.creation_timestamp.timestamp() < began - 1:
                continue
            times = pods.setdefault(pod.metadata.labels["slipway.dev/step"], PodTimes(now))
            for status in pod.status.container_statuses or []:
                if status.state.running:
                    times.running = times.running or now
                if (end := status.state.terminated) and not times.ended:
                    times.running = times.running or now
                    times.ended, times.container_s = now, (end.finished_at - end.started_at).total_seconds()


def _print(run: Run, tasks: Mapping[str, Task], pods: Mapping[str, PodTimes]) -> None:
    print(f"{'seconds':<16}" + TEN_PLACES.format("to pod", "to start", "container", "until end", "task"))
    before, after = [], []
    for step, times in pods.items():
        task = tasks[step]
        assert task.started_at is not None
        assert task.ended_at is not None
        began, ended = task.started_at.timestamp(), task.ended_at.timestamp()
        parts = (times.created - began, times.running - times.created, times.container_s, ended - times.ended)
        before.append(parts[0])
        after.append(parts[3])
        print(f"{step:<16}" + TEN_PLACES.format(*(f"{part:.2f}" for part in (*parts, ended - began))))
    assert run.started_at is not None
    assert run.ended_at is not None
    run_s, work_s = (run.ended_at - run.started_at).total_seconds(), sum(times.container_s for times in pods.values())
    beside_s, ours_s = (run_s - work_s) / len(pods), mean(before) + mean(after)
    print(
        f"run {run_s:.1f} s, containers {work_s:.0f} s, {len(pods)} pods and {len(tasks) - len(pods)} tasks without one"
    )
    print(f"beside its container, a pod's step: {beside_s:.2f} s (goal {GOAL_S} s: {_verdict(beside_s, GOAL_S)})")
    print(
        f"until its pod is created, and from its end on: {ours_s:.2f} s (goal {OURS_S} s: {_verdict(ours_s, OURS_S)})"
    )


def _verdict(found: float, goal: float) -> str:
    return "met" if found <= goal else "missed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
