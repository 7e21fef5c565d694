"""`python -m bench.airflow.queued_releases`: many releases queued at once on the laptop's stack.

First the curve: so many releases at once, each of another model, against as many runs of the same number of bare
KubernetesPodOperators. Then all releases of all models are triggered at once. Every step is a task of dags/release.py
and a pod of the embedded cluster, whose program only writes the step's result (bench/step_runs). At the end each step
must have had one pod, by its UID, that succeeded; and no pod or lease may be left. The releases are of three kinds:
{mix}.
What is left out: the work of the steps, and with it the leases that roll-out takes; the limit of LocalExecutor is the
laptop's own, 4 tasks at once. For Airflow 3.3.2.
"""

import argparse
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from kubernetes import client, config

from bench.step_runs import history
from bench.step_runs.history import Run
from bench.step_runs.laptop import PEER, PODS, Kind, laptop, release_dag, workplace, write_files
from bench.step_runs.pods import SUCCEEDED, Pod, PodRecord
from bench.step_runs.runs import ended, trigger
from bench.step_runs.services import ServiceMemory, cpu_s, halves
from cli.airflow.api import Airflow
from cli.settings import Settings
from local.stack import Stack

RELEASES, MODELS, AT_ONCE = 200, 20, (1, 2, 4, 8, 16, 20)
QUICK_RELEASES, QUICK_MODELS, QUICK_AT_ONCE = 8, 4, (1, 4)
IN_TURN: tuple[Kind, ...] = ("full", "stored", "stored", "nothing")
LIMIT_S = 3600.0
GROWTH = 1.25
"""Memory of the second half may be so many times that of the first."""
SERVICES = ("cluster", "object-store", "api-server", "execution-api", "scheduler", "dag-processor", "triggerer")


def main() -> int:
    """Print the curve, and what became of the queued releases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=RELEASES)
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--at-once", type=int, nargs="+", default=AT_ONCE, help="the curve's points")
    parser.add_argument("--quick", action="store_true", help="8 releases of 4 models, and two points of the curve")
    arguments = parser.parse_args()
    releases, models, at_once = arguments.releases, arguments.models, arguments.at_once
    if arguments.quick:
        releases, models, at_once = QUICK_RELEASES, QUICK_MODELS, QUICK_AT_ONCE
    if max(at_once) > models:
        parser.error("a model has one release at a time, so --at-once is at most --models")
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}; {models} models", flush=True
    )
    with workplace() as folder:
        write_files(folder, models)
        stack = laptop(folder, notice_s=0)
        try:
            stack.up(lambda _: None)
            with Settings.resolve(os.environ | stack.client_environment()).airflow() as airflow:
                return measure(stack, airflow, releases, models, at_once)
        finally:
            stack.down()


def measure(stack: Stack, airflow: Airflow, releases: int, models: int, at_once: Sequence[int]) -> int:
    """Print everything; 1 if a step was lost or ran twice."""
    for dag_id in (*map(release_dag, range(models)), PEER):  # the first runs import what later ones have
        trigger(airflow, dag_id, f"warm-{dag_id}-nothing")
    ended(stack, {f"warm-{dag_id}-nothing" for dag_id in (*map(release_dag, range(models)), PEER)})
    for number in at_once:
        print_point(stack, airflow, number)
    with PodRecord(stack.kubeconfig, "slipway") as record, ServiceMemory(stack.folder, SERVICES) as memory:
        began = time.monotonic()
        expected = queue(airflow, releases, models)
        print(f"{releases} releases triggered in {time.monotonic() - began:.0f} s", flush=True)
        runs = ended(stack, {run_id for _, run_id in expected}, LIMIT_S)
    return print_end(stack, runs, expected, record, memory)


def print_point(stack: Stack, airflow: Airflow, number: int) -> None:
    """Run so many releases at once, then as many runs of the peer; print one point of the curve."""
    points = []
    for dags in ([release_dag(each) for each in range(number)], [PEER] * number):
        tag, before_s = time.time_ns(), cpu_s(stack.folder)
        runs = ended(stack, {trigger(airflow, dag_id, f"{tag}-{each}-full") for each, dag_id in enumerate(dags)})
        used_s = (cpu_s(stack.folder) - before_s) / sum(len(run.steps) for run in runs)
        points.append((median(run.overhead_s for run in runs), history.steps_per_second(runs), used_s))
    (ours_s, our_rate, our_cpu_s), (peers_s, peer_rate, peer_cpu_s) = points
    print(
        f"{number:3} at once: {ours_s:5.2f} s a step beside its work, {our_rate:.2f} steps/s, {our_cpu_s:.2f} s of CPU "
        f"a step; bare KubernetesPodOperator {peers_s:5.2f} s, {peer_rate:.2f} steps/s, {peer_cpu_s:.2f} s of CPU: "
        f"{ours_s / peers_s:.2f} of its time",
        flush=True,
    )


def queue(airflow: Airflow, releases: int, models: int) -> dict[tuple[str, str], tuple[str, ...]]:
    """Trigger all releases; the steps that need a pod, by DAG and run."""
    tag, expected = time.time_ns(), {}
    for number in range(releases):
        # so that each model has releases of every kind
        kind = IN_TURN[(number + number // models) % len(IN_TURN)]
        dag_id, run_id = release_dag(number % models), f"{tag}-{number}-{kind}"
        expected[dag_id, trigger(airflow, dag_id, run_id)] = PODS[kind]
    return expected


def print_end(
    stack: Stack,
    runs: list[Run],
    expected: Mapping[tuple[str, str], tuple[str, ...]],
    record: PodRecord,
    memory: ServiceMemory,
) -> int:
    """Print what became of the queue; 1 if a step was lost or ran twice."""
    wall_s = max(run.ended_s for run in runs) - min(run.began_s for run in runs)
    steps, pods = sum(len(run.steps) for run in runs), sum(len(run.pods) for run in runs)
    print(
        f"{len(runs)} releases ended after {wall_s / 60:.1f} min, {history.most_at_once(runs)} at once at most: "
        f"{steps} steps, {pods} with a pod, {history.steps_per_second(runs):.2f} steps/s"
    )
    found = [*problems(runs, expected, record.pods.values()), *left_over(stack)]
    found += [record.problem] if record.problem else []
    print(f"steps lost, run twice or left over (goal 0: {'missed' if found else 'met'}): {len(found)}")
    for problem in found[:20]:
        print(f"  {problem}")
    for service, values in memory.mib.items():
        first, second = halves(values)
        verdict = "met" if second <= GROWTH * first else "missed"
        print(
            f"memory of {service}: at first {values[0]:.0f} MiB, at most {first:.0f}, in the second half {second:.0f} "
            f"(goal {GROWTH:g} of the first: {verdict})"
        )
    return 1 if found else 0


def problems(
    runs: Iterable[Run], expected: Mapping[tuple[str, str], tuple[str, ...]], pods: Iterable[Pod]
) -> list[str]:
    """Every step without exactly one pod, which succeeded and was deleted, and every task that took several tries."""
    pods = [pod for pod in pods if pod.run]
    counts = Counter((pod.run, pod.step) for pod in pods)
    wanted = {(run_id, step) for (_, run_id), steps in expected.items() for step in steps}
    found = [f"run {run_id} is missing" for _, run_id in expected.keys() - {(run.dag_id, run.run_id) for run in runs}]
    found += [f"{step} of run {run} had {counts[run, step]} pods" for run, step in wanted if counts[run, step] != 1]
    found += [f"{step} of run {run} had a pod, expected none" for run, step in counts.keys() - wanted]
    found += [f"pod {pod.name} is {pod.phase}" for pod in pods if pod.phase != SUCCEEDED]
    found += [f"pod {pod.name} was not deleted" for pod in pods if not pod.deleted]
    return found + [
        f"{task.task_id} of run {run.run_id} took {task.tries} tries"
        for run in runs
        for task in run.steps
        if task.tries != 1
    ]


def left_over(stack: Stack) -> list[str]:
    """Pods of steps and leases of models that still exist."""
    api = config.new_client_from_config(str(stack.kubeconfig))
    pods = client.CoreV1Api(api).list_namespaced_pod("slipway").items
    leases = client.CoordinationV1Api(api).list_namespaced_lease("slipway-serving").items
    return [
        f"{kind} {each.metadata.name} is left" for kind, all_ in (("pod", pods), ("lease", leases)) for each in all_
    ]


if __name__ == "__main__":
    __doc__ = __doc__.format(mix=", ".join(f"{kind} with {len(PODS[kind])} pods" for kind in dict.fromkeys(IN_TURN)))
    sys.exit(main())
