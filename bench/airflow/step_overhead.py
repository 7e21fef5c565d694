"""`python -m bench.airflow.step_overhead`: what Airflow adds to each step, with its services and with `dags test`.

Overhead is the time of a run in which no pod's program runs, over the number of tasks that ran. The release is that of
dags/releases.py with every stage missing; the programs of its pods only write the step's result (bench/step_runs). Its
peer is a chain of as many KubernetesPodOperators with the provider's defaults, whose program does nothing. The two
take turns on the laptop's stack; the first run of each is not counted with services, which start then. `airflow dags
test`, a process of its own for each run, is counted from the end of the first step on, because its start takes always
the same time. For Airflow 3.3.2.

A kubelet looks at its containers once a second, so a step is longer by up to a second. `--notice-s 1` has the cluster
report each end a second later, as on a laptop; 0 leaves Airflow's own part.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from statistics import median

from bench.step_runs import history
from bench.step_runs.history import Run
from bench.step_runs.laptop import PEER, PEER_PODS, RELEASE, laptop, workplace, write_files
from bench.step_runs.runs import database, ended, trigger
from local.stack import Stack
from slipway.cli.settings import Settings

SERVICES, TEST = "services", "dags test"
GOALS_S = {TEST: 0.25, SERVICES: 0.5}
"""In the order of the measurements: a scheduler that runs would take the tasks of `dags test` too."""
NOT_COUNTED = {TEST: 0, SERVICES: 1}
"""So many first runs of each DAG are left out of the median."""
RUNS = 5


def main() -> int:
    """Print a line for each way to run a DAG."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each DAG that are counted")
    parser.add_argument("--notice-s", type=float, nargs="+", default=[0.0], help="how late the cluster reports ends")
    parser.add_argument("--only", choices=GOALS_S, action="append", help="only this way to run a DAG")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"{PEER_PODS} pods a run; medians of {arguments.runs}", flush=True)
    for notice_s in arguments.notice_s:
        with workplace() as folder:
            write_files(folder)
            stack = laptop(folder, notice_s=notice_s)
            try:
                for way in [way for way in GOALS_S if way in (arguments.only or GOALS_S)]:
                    compare(way, stack, arguments.runs, notice_s)
            finally:
                stack.down()
    return 0


def compare(way: str, stack: Stack, runs: int, notice_s: float) -> None:
    """Run both DAGs in turn, and print what each step of them costs."""
    start = {SERVICES: with_services, TEST: with_dags_test}[way]
    overhead = attrgetter("overhead_s" if way == SERVICES else "overhead_after_first_s")
    taken: dict[str, list[Run]] = {RELEASE: [], PEER: []}
    run_both = start(stack)
    for _ in range(NOT_COUNTED[way] + runs):
        for dag_id, its_runs in taken.items():
            its_runs.append(run_both(dag_id))
    ours_s, peers_s = (median(map(overhead, taken[dag_id][-runs:])) for dag_id in (RELEASE, PEER))
    goal_s = GOALS_S[way]
    verdict = f"(goal {goal_s} s: {'met' if ours_s <= goal_s else 'missed'})"
    print(
        f"{way}, ends reported after {notice_s:g} s: {ours_s:.2f} s a step {verdict}, bare KubernetesPodOperator "
        f"{peers_s:.2f} s: {ours_s / peers_s:.2f} of it",
        flush=True,
    )
    _print_parts(taken[RELEASE][-runs:])


def _print_parts(runs: list[Run]) -> None:
    """Print how much of a release's time passes in tasks with a pod, in the others, and between tasks."""
    parts = []
    for run in runs:
        tasks = [task for task in run.tasks if task.had_process]
        spent = {pod: [t.ended_s - t.began_s for t in tasks if t.had_pod is pod] for pod in (True, False)}
        parts.append((run.ended_s - run.began_s, *(sum(spent[pod]) for pod in (True, False)), len(spent[False])))
    wall_s, pods_s, others_s, others = (median(column) for column in zip(*parts, strict=True))
    between_s = wall_s - pods_s - others_s
    print(
        f"  a release: {wall_s:.1f} s, of which {pods_s:.1f} in tasks with a pod, {others_s:.1f} in {others:.0f} "
        f"others, {between_s:.1f} between tasks",
        flush=True,
    )


def with_services(stack: Stack) -> Callable[[str], Run]:
    """Start Airflow's services; a function that runs a DAG in them."""
    stack.up(lambda _: None)
    settings = Settings.resolve(os.environ | stack.client_environment())

    def run(dag_id: str) -> Run:
        with settings.airflow() as airflow:
            return ended(stack, [trigger(airflow, dag_id, str(time.time_ns()))])[0]

    return run


def with_dags_test(stack: Stack) -> Callable[[str], Run]:
    """Start the cluster and create Airflow's database; a function that runs a DAG by `airflow dags test`."""
    stack.up(lambda _: None, airflow=False)
    stack.airflow.prepare()
    environment = stack.airflow.environment()

    def run(dag_id: str) -> Run:
        return dags_test(stack, dag_id, environment)

    return run


def dags_test(stack: Stack, dag_id: str, environment: Mapping[str, str]) -> Run:
    """Run a DAG once by `airflow dags test`."""
    before = {run.run_id for run in history.read(database(stack))}
    done = subprocess.run(
        ["airflow", "dags", "test", dag_id], env=dict(environment), capture_output=True, text=True, check=False
    )
    new = [run for run in history.read(database(stack)) if run.run_id not in before and run.dag_id == dag_id]
    if done.returncode or len(new) != 1 or new[0].state != "success":
        raise SystemExit(f"airflow dags test {dag_id} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return new[0]


if __name__ == "__main__":
    sys.exit(main())
