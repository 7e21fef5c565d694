"""`python -m bench.airflow.orchestration`: CPU and statements that Airflow needs for each spec and each task.

It reads the DAGs of so many specs, each file in a process of its own as Airflow's dag-processor does, stores them, and
lets the scheduler run some of them with an executor whose tasks succeed at once: what is left is the scheduler's own
work. Each figure is of one process, SQLite, one reading. docs/scale.md uses those of 200 specs. For Airflow 3.3.2.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PYTHON = REPOSITORY / ".slipway" / "envs" / "airflow" / "bin" / "python"
SPEC = REPOSITORY / "specs" / "demo.yaml"
SPECS, RUNS = 200, 40
FILES = ("releases", "broken_specs")
TASK = """
import time
import airflow.sdk.execution_time.task_runner, airflow.executors.local_executor
from airflow.dag_processing.dagbag import DagBag

began = time.process_time()
assert not DagBag(sys.argv[1]).import_errors
dag_s, began = time.process_time() - began, time.process_time()
from airflow.providers.amazon.aws.hooks.s3 import S3Hook
import boto3
boto3.client("s3", region_name="us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
print(f"a task's process: imports and DAG {dag_s:.2f} s, S3 client {time.process_time() - began:.2f} s of CPU")
"""
READ = """
import os, time
from airflow.dag_processing.dagbag import DagBag

file, folder, specs = sys.argv[1], sys.argv[2], int(sys.argv[3])
assert not DagBag(file).import_errors  # of a folder without specs: imports libraries
os.environ["SLIPWAY_SPECS"] = folder
began = time.process_time()
bag = DagBag(file)
cpu_s = time.process_time() - began
assert not bag.import_errors, bag.import_errors
print(f"reading dags/{os.path.basename(file)}, a spec: {1000 * cpu_s / specs:.2f} ms of CPU", flush=True)
"""
OTHER_WAYS = """
import os, pathlib, time
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import LazyDeserializedDAG

file, folder, one, specs = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
assert not DagBag(file).import_errors  # imports libraries and our own code

def of_each(what, seconds, each):
    print(f"{what}: {1000 * seconds / each:.2f} ms of CPU", flush=True)

from slipway.airflow.specs import read_specs
began = time.process_time()
assert len(read_specs(folder).good) == specs
of_each("reading and checking specs, which a cache would save, a spec", time.process_time() - began, specs)

os.environ["SLIPWAY_SPECS"] = one
before = os.times()
for _ in range(10):
    if os.fork() == 0:
        for dag in DagBag(file).dags.values():
            LazyDeserializedDAG.from_dag(dag)
        os._exit(0)
    assert os.wait()[1] == 0
after = os.times()
spent = after.children_user + after.children_system - before.children_user - before.children_system
of_each("a file for each spec, in a forked process with all imports, a spec", spent, 10)
"""
PROCESSES = """
import time
from contextlib import contextmanager
from datetime import UTC, datetime

from airflow.utils import db
db.initdb()

from airflow import settings
from airflow.api.common.trigger_dag import trigger_dag
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.collection import update_dag_parsing_results_in_db
from airflow.dag_processing.dagbag import DagBag
from airflow.executors.base_executor import BaseExecutor
from airflow.jobs.job import Job, run_job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.taskinstance import TaskInstance
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import event, func, select, update

folder, specs, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
statements = [0]

@event.listens_for(settings.engine, "before_cursor_execute")
def count(*_):
    statements[0] += 1

@contextmanager
def measured(what, each):
    began, counted = time.process_time(), statements[0]
    yield
    cpu_s, asked = time.process_time() - began, statements[0] - counted
    print(f"{what}: {1000 * cpu_s / each:.1f} ms of CPU, {asked / each:.2f} statements", flush=True)

class Instant(BaseExecutor):
    is_local = True
    start = end = terminate = sync = lambda self: None

    def _process_workloads(self, workloads):
        now = datetime.now(UTC)
        with create_session() as session:
            for work in workloads:
                done = {"state": "success", "start_date": now, "end_date": now}
                session.execute(update(TaskInstance).where(TaskInstance.id == work.ti.id).values(**done))
                self.queued_tasks.pop(work.ti.key, None)
                self.running.add(work.ti.key)
                self.success(work.ti.key)

DagBundlesManager().sync_bundles_to_db()
dags = DagBag(f"{folder}/releases.py").dags
with measured("serializing, the DAGs of a spec", specs):
    lazy = [LazyDeserializedDAG.from_dag(dag) for dag in dags.values()]
for what in ("storing, the new DAGs of a spec", "storing, the unchanged DAGs of a spec"):
    with measured(what, specs), create_session() as session:
        read = {("dags-folder", "releases.py")}
        update_dag_parsing_results_in_db(
            "dags-folder", None, lazy, {}, None, set(), session=session, files_parsed=read
        )
with create_session() as session:
    session.execute(update(DagModel).values(is_paused=False))
releases = sorted(dag_id for dag_id in dags if dag_id.startswith("release__"))
for dag_id in releases[:runs]:
    trigger_dag(dag_id, triggered_by=DagRunTriggeredByType.REST_API, run_id="bench", logical_date=None)
tasks = runs * len(dags[releases[0]].tasks)
runner = SchedulerJobRunner(
    job=Job(), num_runs=20, only_idle=True, scheduler_idle_sleep_time=0.01, executors=[Instant(parallelism=64)]
)
with measured("scheduler, a task", tasks):
    run_job(job=runner.job, execute_callable=runner._execute)
with create_session() as session:
    assert session.scalar(select(func.count()).where(TaskInstance.state == "success")) == tasks
"""


def main() -> int:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, default=SPECS)
    parser.add_argument("--runs", type=int, default=RUNS, help="releases that the scheduler runs")
    arguments = parser.parse_args()
    if not 1 <= arguments.runs <= arguments.specs:
        parser.error("--runs is at least 1 and at most --specs")
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, {arguments.specs} specs, {arguments.runs} runs", flush=True)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "specs").mkdir()
        for number in range(arguments.specs):
            spec = SPEC.read_text().replace("name: demo-llama", f"name: demo-{number}", 1)
            (folder / "specs" / f"{number}.yaml").write_text(spec)
        (folder / "none").mkdir()
        dags, count = str(REPOSITORY / "dags"), str(arguments.specs)
        task = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "release__demo-0"}
        if code := run(folder, TASK, [f"{dags}/releases.py"], task):
            return code
        for name in FILES:
            read = [f"{dags}/{name}.py", str(folder / "specs"), count]
            if code := run(folder, READ, read, {"SLIPWAY_SPECS": str(folder / "none")}):
                return code
        (folder / "one").mkdir()
        (folder / "one" / "0.yaml").write_text((folder / "specs" / "0.yaml").read_text())
        others = [f"{dags}/releases.py", str(folder / "specs"), str(folder / "one"), count]
        if code := run(folder, OTHER_WAYS, others, {"SLIPWAY_SPECS": str(folder / "none")}):
            return code
        return run(folder, PROCESSES, [dags, count, str(arguments.runs)], {"_AIRFLOW_PROCESS_CONTEXT": "server"})


def run(folder: Path, script: str, arguments: list[str], more: dict[str, str]) -> int:
    """Run a script in Airflow's environment, in an AIRFLOW_HOME of its own; its exit code."""
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__API_AUTH__JWT_SECRET": "bench" * 16,
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "PYTHONPATH": str(REPOSITORY),
        "SLIPWAY_SITE": str(REPOSITORY / "sites" / "local.yaml"),
        "SLIPWAY_SPECS": str(folder / "specs"),
        **more,
    }
    command = [str(PYTHON), "-c", f"import sys\n{script}", *arguments]
    return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
