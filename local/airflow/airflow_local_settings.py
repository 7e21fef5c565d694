"""Copied to $AIRFLOW_HOME/config, and to /app in the image, where every Airflow process imports it at start.

Scheduler and dag-processor fork a process per task and per parse. A child has what they imported before;
without this, each task spends about a second importing the operator, the Kubernetes client and boto3 (Airflow 3.3.2,
Linux). No Slipway code is imported here, so the next task sees a change to it.
"""

import importlib
import sys

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

if FORKING & set(sys.argv[1:2]):
    for module in SLOW_TO_IMPORT:
        importlib.import_module(module)
