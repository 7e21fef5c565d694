"""`python -m bench.airflow.parse`: how long Airflow takes to read the DAGs, against DAGs with as many empty tasks.

Each reading is a process of its own, as Airflow's dag-processor reads each file in one. It times `DagBag(<file>)`
twice: first with the imports of the file, without Airflow's own, which every DAG file costs; then again, when
everything is imported and it only reads specs and creates tasks. The two take turns; medians are compared. A third
reading is that of a task's process, which needs one DAG. `--specs 1000` measures with 1,000 specs. For Airflow 3.3.2.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PYTHON = REPOSITORY / ".slipway" / "envs" / "airflow" / "bin" / "python"
SPEC = REPOSITORY / "specs" / "demo.yaml"
RELEASES = REPOSITORY / "dags" / "releases.py"
COUNTS = (1, 40)
GOAL_S = {1: 0.3, 1000: 5.0}
"""Seconds to read so many specs when all is imported, beyond those of as many EmptyOperators."""
READINGS = 5
READ = """
import sys, time
from airflow.dag_processing.dagbag import DagBag

def read():
    began = time.perf_counter()
    bag = DagBag(dag_folder=sys.argv[1])
    assert not bag.import_errors, bag.import_errors
    return bag.dags, time.perf_counter() - began

(dags, first_s), (_, again_s) = read(), read()
print("read", ",".join(str(len(dag.tasks)) for dag in dags.values()), first_s, again_s)
"""
PEER = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, chain

for number, tasks in enumerate({tasks}):
    with DAG(dag_id=f"peer_{{number}}", schedule=None) as dag:
        chain(*(EmptyOperator(task_id=f"task_{{task}}") for task in range(tasks)))
    globals()[dag.dag_id] = dag
"""


@dataclass(frozen=True)
class Reading:
    """One process: how many tasks each DAG has, and seconds of the first and the second time."""

    tasks: tuple[int, ...]
    first_s: float
    again_s: float


def main() -> int:
    """Print three lines per number of specs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, nargs="+", default=COUNTS, help="how many specs to read")
    parser.add_argument("--readings", type=int, default=READINGS)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"median of {arguments.readings}")
    with tempfile.TemporaryDirectory() as folder:
        for count in arguments.specs:
            ours, peers, tasks = measure(Path(folder) / str(count), count, arguments.readings)
            for name, when in (("first_s", "with its imports"), ("again_s", "all imported")):
                our_s, peer_s = (median(getattr(reading, name) for reading in each) for each in (ours, peers))
                line = f"{count:4} specs, {when:16}: dags/releases.py {our_s:.3f} s, EmptyOperator DAGs {peer_s:.3f} s"
                print(
                    f"{line}, ratio {our_s / peer_s:.1f}{_verdict(our_s - peer_s, count) if name == 'again_s' else ''}"
                )
            task_s, all_s = (median(reading.again_s for reading in each) for each in (tasks, ours))
            print(f"{count:4} specs, in a task's process: {task_s:.3f} s, {task_s / all_s:.2f} of reading all")
    return 0


def _verdict(net_s: float, count: int) -> str:
    """Whether what remains without Airflow's own work, which the peer needs too, is within the goal."""
    goal_s = GOAL_S.get(count)
    return f", {net_s:.3f} s more (goal {goal_s} s: {'met' if net_s <= goal_s else 'missed'})" if goal_s else ""


def measure(folder: Path, count: int, readings: int) -> tuple[list[Reading], list[Reading], list[Reading]]:
    """Readings of our DAG file over `count` specs, of as many DAGs with as many empty tasks, and of ours in a task."""
    specs, text, peer = folder / "specs", SPEC.read_text(), folder / "peer.py"
    specs.mkdir(parents=True)
    for number in range(count):
        (specs / f"{number}.yaml").write_text(text.replace("name: demo-llama", f"name: demo-{number}", 1))
    ours, peers, tasks = [], [], []
    for _ in range(readings):
        ours.append(read(RELEASES, folder))
        if len(ours[0].tasks) < count:
            raise SystemExit(f"dags/releases.py made {len(ours[0].tasks)} DAGs of {count} specs")
        peer.write_text(PEER.format(tasks=ours[0].tasks))
        peers.append(read(peer, folder))
        tasks.append(read(RELEASES, folder, task_of=f"release__demo-{count - 1}"))
    return ours, peers, tasks


def read(file: Path, folder: Path, task_of: str | None = None) -> Reading:
    """Read `file` in a fresh process: that of a task if `task_of` is its DAG's id."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": str(REPOSITORY),
        "SLIPWAY_SITE": str(REPOSITORY / "sites" / "local.yaml"),
        "SLIPWAY_SPECS": str(folder / "specs"),
    }
    if task_of:
        environment["_AIRFLOW_PARSING_CONTEXT_DAG_ID"] = task_of  # what Airflow's task runner sets
    command = [str(PYTHON), "-c", READ, str(file)]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("read ")), None)
    if done.returncode or line is None:
        raise SystemExit(f"{file} could not be read:\n{done.stderr[-2000:]}")
    _, tasks, first_s, again_s = line.split()
    return Reading(tuple(map(int, tasks.split(","))), float(first_s), float(again_s))


if __name__ == "__main__":
    sys.exit(main())
