"""Copied to $AIRFLOW_HOME/config, and to /app in the image, where every Airflow process imports it at start.

Scheduler and dag-processor fork a process per task and per parse. A child has what they imported before; without
this, each task spends about a second importing the operator, the Kubernetes client, boto3 and Slipway's own code
(Airflow 3.3.2, Linux). A child forgets Slipway's code if a file of it has changed, so the next task sees a change.
"""

import importlib
import logging
import os
import sys
import time
from pathlib import Path

FORKING = {"scheduler", "dag-processor"}
SLOW_TO_IMPORT = (
    "airflow.providers.amazon.aws.hooks.s3",
    "airflow.providers.cncf.kubernetes.operators.pod",
    "airflow.providers.standard.operators.hitl",
    "boto3",
    "kubernetes.client",
    "kubernetes.stream",
    "kubernetes_asyncio.client",
    "pydantic",
    "yaml",
)
CHANGED = -1
"""Stands for the time of a file that every child reads again."""
OWN = ("slipway.airflow.approval", "slipway.airflow.dags", "slipway.airflow.released", "slipway.airflow.step_operator")

log = logging.getLogger(__name__)


def own_modules() -> list[str]:
    """Names of the imported modules of Slipway."""
    return [name for name in sys.modules if name.partition(".")[0] == "slipway"]


def own_files() -> dict[str, int]:
    """When each file of Slipway's imported modules was changed, in nanoseconds; 0 for one that is gone."""
    files = (getattr(sys.modules[name], "__file__", None) for name in own_modules())
    return {file: changed_at(file) for file in files if file}


def changed_at(file: str) -> int:
    """When a file was changed, in nanoseconds; 0 if it is gone."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def forget_changed_code(imported: dict[str, int]) -> None:
    """Forget all of Slipway's code if a file has changed since it was `imported`: the next import reads it again."""
    if any(changed_at(file) != before for file, before in imported.items()):
        for name in own_modules():
            del sys.modules[name]


def import_own() -> None:
    """Import Slipway's code. An error in it belongs to the DAGs that import it, which report it."""
    began = time.time_ns()
    try:
        for module in OWN:
            importlib.import_module(module)
    except Exception:
        log.exception("Slipway's code could not be imported before the first task; each task will try")
        forget_changed_code({"": CHANGED})
        return
    # a file that changed meanwhile may have been imported before or after that
    imported = {file: at if at < began else CHANGED for file, at in own_files().items()}
    os.register_at_fork(after_in_child=lambda: forget_changed_code(imported))


if FORKING & set(sys.argv[1:2]):
    for module in SLOW_TO_IMPORT:
        importlib.import_module(module)
    import_own()
