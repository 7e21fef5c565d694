"""Every number that the simulation starts from: what it is, where it was measured, or that it is assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Origin = Literal["measured", "documented", "assumed"]


@dataclass(frozen=True)
class Number:
    """One input."""

    value: float
    unit: str
    origin: Origin
    source: str


ORCHESTRATION = (
    "a run of bench.airflow.orchestration, 200 specs: 2 cores of an Intel Xeon beside other work, Airflow 3.3.2, SQLite"
)
CONFIG = "Airflow 3.3.2's default"
VALUES = "k8s_manifests/airflow/values.yaml"
SETTINGS = "k8s_manifests/airflow/settings.yaml"
S3 = "docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html, for each partitioned prefix"
GUESS = "no model of this size was released by Slipway yet"

NUMBERS: Mapping[str, Number] = {
    # the DAG processor, for each spec
    "parse_release_s": Number(0.0065, "CPU s", "measured", f"dags/release.py; {ORCHESTRATION}"),
    "parse_broken_s": Number(0.0057, "CPU s", "measured", f"dags/broken_specs.py; {ORCHESTRATION}"),
    "parse_rollback_s": Number(0.0014, "CPU s", "measured", f"dags/rollback.py; {ORCHESTRATION}"),
    "serialize_s": Number(0.0028, "CPU s", "measured", f"a DAG of release.py; {ORCHESTRATION}"),
    "sync_s": Number(0.0012, "CPU s", "measured", f"an unchanged DAG to the database; {ORCHESTRATION}"),
    "sync_statements": Number(1.04, "statements", "measured", f"the same; {ORCHESTRATION}"),
    "import_timeout_s": Number(30, "s", "documented", f"{CONFIG} of core.dagbag_import_timeout"),
    "parsing_processes": Number(2, "processes", "documented", f"{CONFIG} of dag_processor.parsing_processes"),
    "parse_interval_s": Number(30, "s", "documented", f"{CONFIG} of dag_processor.min_file_process_interval"),
    # Airflow, for each task
    "schedule_s": Number(0.0138, "CPU s", "measured", f"scheduler, from a run's creation to success; {ORCHESTRATION}"),
    "schedule_statements": Number(13.7, "statements", "measured", f"the same; {ORCHESTRATION}"),
    "process_s": Number(0.87, "CPU s", "measured", f"a task's process: imports, DAG; {ORCHESTRATION}"),
    "preimported_s": Number(
        0.2, "CPU s", "measured", "docs/verified.md: a task's process, all imported: 0.17 and 0.24 s"
    ),
    "store_client_s": Number(0.32, "CPU s", "measured", f"boto3 and its client; {ORCHESTRATION}"),
    "api_s": Number(
        0.15, "CPU s", "assumed", "Airflow's API server, for a task's process: at most 0.45 s were measured"
    ),
    "api_statements": Number(30, "statements", "assumed", "of the API server, for a task's process"),
    "statement_s": Number(0.001, "s", "assumed", "the database, for a statement"),
    "idle_sleep_s": Number(0.1, "s", "documented", f"{SETTINGS}, scheduler.scheduler_idle_sleep_time"),
    "notice_s": Number(2.0, "s", "measured", "until a finished container is noticed, on a real cluster"),
    "parallelism": Number(64, "tasks", "documented", f"{VALUES}, for each scheduler"),
    "scheduler_cores": Number(4, "cores", "assumed", "of a scheduler's pod, in which LocalExecutor runs the tasks"),
    "api_cores": Number(2, "cores", "assumed", "of Airflow's API servers together"),
    "database_cores": Number(4, "cores", "assumed", "of PostgreSQL"),
    # the cluster
    "kube_calls": Number(12, "calls", "measured", "of a step's pod, counted: KubernetesPodOperator 10.25"),
    "kube_poll_s": Number(2.0, "s", "documented", "between looks at a running pod: KubernetesPodOperator 10.25"),
    "kube_limit": Number(100, "calls/s", "assumed", "that one cluster's API server gives to Airflow"),
    "node_s": Number(
        240, "s", "assumed", "until a GPU pod runs: a node from zero and its image, if it waits for no GPU"
    ),
    "pod_s": Number(5, "s", "assumed", "until a pod without GPUs runs"),
    "schedule_budget_s": Number(
        1800, "s", "documented", "budgets.gpu.schedule_min of a site; then the step is tried again"
    ),
    # the object store
    "part_bytes": Number(8 * 2**20, "bytes", "documented", "a part of a transfer: docs/decisions/0032"),
    "copy_bytes": Number(256 * 2**20, "bytes", "documented", "a part of publish's copy: docs/decisions/0034"),
    "put_limit": Number(3500, "requests/s", "documented", S3),
    "get_limit": Number(5500, "requests/s", "documented", S3),
    # the work itself, for each GB of a model's weights where it depends on them
    "transfer_gb_s": Number(0.3, "GB/s", "assumed", "a pod's transfers; 0.03 to 0.05 were measured on a busy laptop"),
    "quantize_s_gb": Number(60, "s/GB", "assumed", GUESS),
    "build_s_gb": Number(30, "s/GB", "assumed", GUESS),
    "assemble_s": Number(240, "s", "assumed", "boot and first answer; 7 s were measured with the demo's model"),
    "ready_s": Number(300, "s", "assumed", "until a candidate has its weights and answers"),
    "measure_s": Number(
        900, "s", "assumed", "smoke-test, benchmark and gate; 20 to 90 s were measured with the demo's model"
    ),
    "plan_s": Number(10, "s", "assumed", "plan's pod; 5 s of it were seen with the demo's model"),
    "spread": Number(0.5, "", "assumed", "standard deviation of a duration over its mean; lognormal"),
    # the releases
    "working_share": Number(0.7, "", "assumed", "of a day's releases, asked between 9 and 18 o'clock"),
    "edited_share": Number(
        0.2, "", "assumed", "of releases that begin with a changed spec, which has to be read first"
    ),
    "stored_share": Number(0.3, "", "assumed", "of releases whose weights and engine are stored already"),
    "refused_share": Number(0.1, "", "assumed", "of candidates that their gate refuses"),
}

ASSUMED = tuple(name for name, number in NUMBERS.items() if number.origin == "assumed")


def values(changes: Mapping[str, float] | None = None) -> dict[str, float]:
    """The numbers as plain values, some of them replaced."""
    return {name: number.value for name, number in NUMBERS.items()} | dict(changes or {})


@dataclass(frozen=True)
class Product:
    """The models of one GPU product, and the GPUs that a cluster has for releasing them beside its live models."""

    name: str
    share: float
    """Of all releases."""
    weights_gb: float
    gpus: int
    """Of one pod, of a step or a candidate."""
    compiled: bool
    """Whether quantize and build use GPUs."""
    free_gpus: int
    """In each cluster."""


PRODUCTS = (
    Product("L4", share=0.6, weights_gb=16, gpus=1, compiled=True, free_gpus=6),
    Product("A10G", share=0.3, weights_gb=14, gpus=1, compiled=False, free_gpus=4),
    Product("H100", share=0.1, weights_gb=140, gpus=4, compiled=True, free_gpus=8),
)
"""Assumed, after specs/ and sites/eks.yaml."""
